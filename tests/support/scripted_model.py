"""The model of a scenario: a loopback server that speaks the Responses API and records what it was sent.

A reply is a list of events, with `Hold`s between them where a scenario wants to act while the model is answering.
`Reply` also has statuses, headers, broken connections and endless streams; every request is recorded.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketStream

from app_server.demo.scripted_model import (
    EVENT_STREAM,
    LAST_CHUNK,
    LoopbackServer,
    ReceivedRequest,
    chunk,
    event_chunk,
    response_head,
    whole_response,
)
from app_server_protocol.structs import Json


class Hold:
    """A place in a reply where the model waits for the scenario."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self._released = anyio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._released.wait()


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to one request."""

    events: tuple[Json | Hold, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """In place of the events, byte for byte."""
    cut: bool = False
    """The connection breaks after the last event."""


def reply(
    *events: Json | Hold,
    input: int = 10,
    output: int = 5,
    cached: int = 0,
    headers: Sequence[tuple[str, str]] = (),
) -> Reply:
    """The events between their frame, with what they cost."""
    usage = {
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + output,
    }
    completed = {"type": "response.completed", "response": {"id": "resp-1", "usage": usage}}
    return Reply((CREATED, *events, completed), headers=tuple(headers))


def chat_reply(*deltas: Json, usage: Json = None, finish: str = "stop") -> Reply:
    """An answer over Chat Completions, piece by piece; without `usage` it does not say what it cost."""
    pieces = [{"id": "chat-1", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"id": "chat-1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    counted = [] if usage is None else [{"id": "chat-1", "choices": [], "usage": usage}]
    frames = (json.dumps(each) for each in (*pieces, end, *counted))
    return Reply(body="".join(f"data: {frame}\n\n" for frame in (*frames, "[DONE]")).encode())


CREATED: Json = {"type": "response.created", "response": {"id": "resp-1"}}


def failure(status: int, body: Json, **headers: str) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode(), headers=tuple(headers.items()))


SCRIPT_ENDED = failure(500, {"error": {"message": "the script ended"}})


def says(text: str, item_id: str = "msg-1") -> Json:
    """A message, whole."""
    content = [{"type": "output_text", "text": text}]
    return done({"type": "message", "role": "assistant", "id": item_id, "content": content})


def begins_to_say() -> Json:
    content = [{"type": "output_text", "text": ""}]
    item = {"type": "message", "role": "assistant", "id": "msg-1", "content": content}
    return {"type": "response.output_item.added", "item": item}


def word(text: str) -> Json:
    return {"type": "response.output_text.delta", "delta": text}


def done(item: Json) -> Json:
    return {"type": "response.output_item.done", "item": item}


def calls(name: str, arguments: Json, call_id: str = "c1") -> Json:
    """A call of a function tool; text goes out as it is."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return done({"type": "function_call", "call_id": call_id, "name": name, "arguments": text})


def runs(*command: str, call_id: str = "c1", **more: Json) -> Json:
    """A call of the shell tool."""
    return calls("shell", {"command": list(command), **more}, call_id)


def script(text: str, call_id: str = "c1", **more: Json) -> Json:
    return runs("sh", "-c", text, call_id=call_id, **more)


def patches(text: str, call_id: str = "c1") -> Json:
    return runs("apply_patch", text, call_id=call_id)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What the model was sent."""

    path: str
    headers: dict[str, str]
    body: Json

    @property
    def input(self) -> list[Json]:
        """None over Chat Completions."""
        return list(self.body.get("input", ()))

    @property
    def tools(self) -> list[str]:
        return [tool.get("name", tool["type"]) for tool in self.body["tools"]]

    def outputs(self) -> dict[str, str]:
        """What the calls gave, by the call's id; images are left out."""
        kinds = ("function_call_output", "custom_tool_call_output")
        return {item["call_id"]: _text(item["output"]) for item in self.input if item["type"] in kinds}

    def texts(self, role: str = "user") -> list[str]:
        """What was said in that role, without the opening messages that the engine writes by itself."""
        said = [_text(item["content"]) for item in self.input if item.get("role") == role]
        return [text for text in said if not text.startswith(("<environment_context>", "# AGENTS.md"))]


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


@dataclass(slots=True)
class ScriptedModel(LoopbackServer):
    """`async with model.serving() as url` serves until the block is left."""

    replies: list[Reply] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    aside: Callable[[Json], Reply | None] = lambda body: None
    """What answers a request that may come at any time, such as for a title; it takes no reply and is not recorded."""

    author: Callable[[ModelRequest], Reply] | None = None
    """What answers in place of the replies."""

    offered: Sequence[str] = ()
    """The models that the provider lists."""

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        if request.method == "GET":
            listed = {"models": [], "data": [{"id": name} for name in self.offered]}
            await stream.send(whole_response(200, json.dumps(listed).encode()))
            return True
        body = json.loads(request.body)
        answer = self.aside(body)
        if answer is None:
            asked = ModelRequest(request.path, request.headers, body)
            self.requests.append(asked)
            if self.author is not None:
                answer = self.author(asked)
            else:
                answer = self.replies.pop(0) if self.replies else SCRIPT_ENDED
        if answer.status != 200:
            await stream.send(whole_response(answer.status, answer.body or b"", dict(answer.headers)))
            return True
        await _send_events(stream, answer)
        return not answer.cut


async def _send_events(stream: SocketStream, answer: Reply) -> None:
    pending = response_head(200, EVENT_STREAM | dict(answer.headers))
    if answer.body is not None:
        pending += chunk(answer.body)
    for event in answer.events:
        if isinstance(event, Hold):
            await stream.send(pending)
            pending = b""
            await event.wait()
        else:
            pending += event_chunk(event)
    await stream.send(pending + (b"" if answer.cut else LAST_CHUNK))
