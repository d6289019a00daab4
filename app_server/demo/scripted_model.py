"""A scripted model: an HTTP server on loopback that implements the Responses API with server-sent events.

An author, a function from the request to the reply, supplies the content, so that a script can react to the server.
`reply`, `says`, `calls` and `runs` build the events. All requests are recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from protocol.base import Json
from protocol.records import dataclass

LARGEST_HEAD = 1 << 16
LARGEST_BODY = 1 << 26


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
class ScriptedModel:
    """`async with model.serving() as base_url` serves until the block is left."""

    author: Author
    requests: list[Json] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, self._connection, name="scripted model")
            yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
            group.cancel_scope.cancel()

    async def _connection(self, stream: SocketStream) -> None:
        """Requests of one connection until the other side leaves, in whatever way."""
        async with stream:
            received = BufferedByteReceiveStream(stream)
            try:
                while True:
                    await self._exchange(received, stream)
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return

    async def _exchange(self, received: BufferedByteReceiveStream, stream: SocketStream) -> None:
        method, path, body = await _read_request(received)
        if method != "POST" or not path.endswith("/responses"):
            return await _send_json(stream, 404, {"error": {"message": f"nothing is at {method} {path}"}})
        request = json.loads(body)
        self.requests.append(request)
        try:
            answer = self.author(request)
        except IndexError:
            return await _send_json(stream, 500, {"error": {"message": "the script has ended"}})
        return await _send_events(stream, answer)


def _message(text: str, item_id: str) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "id": item_id, "content": content}


async def _read_request(received: BufferedByteReceiveStream) -> tuple[str, str, bytes]:
    head = (await received.receive_until(b"\r\n\r\n", LARGEST_HEAD)).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    method, path, _ = first.split(" ", 2)
    length = min(int(headers.get("content-length", "0")), LARGEST_BODY)
    return method, path, await received.receive_exactly(length) if length else b""


async def _send_json(stream: SocketStream, status: int, value: Json) -> None:
    body = json.dumps(value).encode()
    head = (
        f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    await stream.send(head.encode() + body)


async def _send_events(stream: SocketStream, answer: Reply) -> None:
    await stream.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    for event in answer.events:
        await stream.send(_chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()))
        if answer.gap:
            await anyio.sleep(answer.gap)
    await stream.send(_chunk(b""))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
