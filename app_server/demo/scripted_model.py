"""A scripted model: a loopback server that implements the Responses API with server-sent events.

An author, a function from the request to the reply, supplies the content, so that a script can react to the server.
`reply`, `says`, `calls` and `runs` build the events. All requests are recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import field

import anyio
from anyio.abc import SocketStream

from app_server.demo.loopback import (
    EVENT_STREAM,
    LAST_CHUNK,
    LoopbackServer,
    ReceivedRequest,
    event_chunk,
    response_head,
    whole_response,
)
from protocol.base import Json
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model: its events, and the seconds to wait between them."""

    events: tuple[Json, ...]
    gap: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reply costs, in tokens."""

    input: int = 10
    output: int = 5

    @property
    def total(self) -> int:
        return self.input + self.output


USUAL = Usage()


Author = Callable[[Json], Reply]
"""Returns the next reply for the body of a request."""


def reply(*events: Json, usage: Usage = USUAL, gap: float = 0.0) -> Reply:
    """The events between `response.created` and `response.completed`, which has the usage."""
    completed = {
        "id": "resp-1",
        "usage": {"input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": usage.total},
    }
    created = {"type": "response.created", "response": {"id": "resp-1"}}
    return Reply((created, *events, {"type": "response.completed", "response": completed}), gap)


def says(text: str, item_id: str = "msg-1") -> tuple[Json, ...]:
    """A message, word by word and then whole."""
    deltas = re.findall(r"\s*\S+", text)
    return (
        {"type": "response.output_item.added", "item": _message("", item_id)},
        *({"type": "response.output_text.delta", "delta": delta} for delta in deltas),
        {"type": "response.output_item.done", "item": _message(text, item_id)},
    )


def calls(name: str, arguments: Json, call_id: str) -> Json:
    """A call of a function tool."""
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
    return {"type": "response.output_item.done", "item": item}


def runs(command: Sequence[str], call_id: str) -> Json:
    """A call of the shell tool."""
    return calls("shell", {"command": list(command)}, call_id)


def in_order(*replies: Reply) -> Author:
    """An author with fixed replies. Raises IndexError at the end of the script."""
    remaining = list(replies)
    return lambda _: remaining.pop(0)


@dataclass(slots=True)
class ScriptedModel(LoopbackServer):
    """`async with model.serving() as base_url` serves until the block is left."""

    author: Author
    requests: list[Json] = field(default_factory=list)

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        if request.method != "POST" or not request.path.endswith("/responses"):
            await _send_error(stream, 404, f"nothing is at {request.method} {request.path}")
            return True
        body = json.loads(request.body)
        self.requests.append(body)
        try:
            answer = self.author(body)
        except IndexError:
            await _send_error(stream, 500, "the script has ended")
            return True
        await stream.send(response_head(200, EVENT_STREAM))
        for event in answer.events:
            await stream.send(event_chunk(event))
            if answer.gap:
                await anyio.sleep(answer.gap)
        await stream.send(LAST_CHUNK)
        return True


def _message(text: str, item_id: str) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "id": item_id, "content": content}


async def _send_error(stream: SocketStream, status: int, message: str) -> None:
    await stream.send(whole_response(status, json.dumps({"error": {"message": message}}).encode()))
