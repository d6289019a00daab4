"""The model of a scenario: a loopback server that implements the Responses API and records its requests.

A reply is a list of events, with `Hold`s between them where a scenario wants to act while the model is answering.
`Reply` also has statuses, headers, broken connections and endless streams. Every request is recorded.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketStream

from app_server.cli.demo.scripted_model import (
    EVENT_STREAM,
    LAST_CHUNK,
    LoopbackServer,
    ReceivedRequest,
    chunk,
    event_chunk,
    response_head,
    whole_response,
)
from app_server_protocol.encoding import Json


class Hold:
    """Point in a reply at which the model waits for the scenario."""

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
    """Answer to one request."""

    events: tuple[Json | Hold, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """Bytes that are sent in place of the events."""
    cut: bool = False
    """Whether the connection breaks after the last event."""


def reply(
    *events: Json | Hold,
    input: int = 10,
    output: int = 5,
    cached: int = 0,
    headers: Sequence[tuple[str, str]] = (),
) -> Reply:
    """Return a reply of these events, framed by the first and the last event of a response with its usage."""
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
    """Return an answer over Chat Completions, in pieces. Without `usage` it does not report its usage."""
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
    """Return the events of a whole message."""
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
    """Return the event of a function tool call. Arguments that are a string are sent unchanged."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return done({"type": "function_call", "call_id": call_id, "name": name, "arguments": text})


def runs(*command: str, call_id: str = "c1", **more: Json) -> Json:
    """Return the event of a call of the shell tool."""
    return calls("shell", {"command": list(command), **more}, call_id)


def script(text: str, call_id: str = "c1", **more: Json) -> Json:
    return runs("sh", "-c", text, call_id=call_id, **more)


def patches(text: str, call_id: str = "c1") -> Json:
    return runs("apply_patch", text, call_id=call_id)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Request that the model received."""

    path: str
    headers: dict[str, str]
    body: Json

    @property
    def input(self) -> list[Json]:
        """Input items; None over Chat Completions."""
        return list(self.body.get("input", ()))

    @property
    def tools(self) -> list[str]:
        return [tool.get("name", tool["type"]) for tool in self.body["tools"]]

    def outputs(self) -> dict[str, str]:
        """Return the outputs of the calls by call id, without images."""
        kinds = ("function_call_output", "custom_tool_call_output")
        return {item["call_id"]: _text(item["output"]) for item in self.input if item["type"] in kinds}

    def texts(self, role: str = "user") -> list[str]:
        """Return the texts of the messages in that role, without the opening messages that the engine writes itself."""
        said = [_text(item["content"]) for item in self.input if item.get("role") == role]
        return [text for text in said if not text.startswith(("<environment_context>", "# AGENTS.md"))]


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


@dataclass(slots=True)
class ScriptedModel(LoopbackServer):
    """Loopback server of a scripted model. `async with model.serving() as url` serves until the block ends."""

    replies: list[Reply] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    aside: Callable[[Json], Reply | None] = lambda body: None
    """Function that answers a request which may come at any time, such as one for a title. Such a request uses no reply
    and is not recorded.
    """

    author: Callable[[ModelRequest], Reply] | None = None
    """Function that answers the requests in place of the replies. None if the replies are used."""

    offered: Sequence[str] = ()
    """Models that the provider lists."""

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
