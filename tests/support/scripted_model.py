"""The model of a scenario: an HTTP server on loopback that speaks the Responses API and says what it was given.

A reply is a list of events, with `Hold`s between them where a scenario wants to act while the model is speaking.
Statuses, headers, broken connections and endless streams are said in `Reply`; every request is kept.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from protocol.base import Json

LARGEST = 1 << 26


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


CREATED: Json = {"type": "response.created", "response": {"id": "resp-1"}}


def failure(status: int, body: Json, **headers: str) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode(), headers=tuple(headers.items()))


def says(text: str) -> Json:
    """A message, whole."""
    content = [{"type": "output_text", "text": text}]
    return done({"type": "message", "role": "assistant", "id": "msg-1", "content": content})


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
        return list(self.body["input"])

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
class ScriptedModel:
    """`async with model.serving() as url` serves until the block is left."""

    replies: list[Reply] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)

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
        received = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                while await self._exchange(received, stream):
                    pass
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                return

    async def _exchange(self, received: BufferedByteReceiveStream, stream: SocketStream) -> bool:
        """One request and its reply; False: the connection ends here."""
        method, path, headers, body = await _read_request(received)
        if method == "GET":
            await _send_whole(stream, Reply(body=b'{"models": [], "data": []}'))
            return True
        self.requests.append(ModelRequest(path, headers, json.loads(body)))
        answer = (
            self.replies.pop(0) if self.replies else failure(500, {"error": {"message": "the script ended"}})
        )
        if answer.status != 200:
            await _send_whole(stream, answer)
            return True
        await _send_events(stream, answer)
        return not answer.cut


async def _read_request(received: BufferedByteReceiveStream) -> tuple[str, str, dict[str, str], bytes]:
    head = (await received.receive_until(b"\r\n\r\n", LARGEST)).decode("latin-1")
    first, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    method, path, _ = first.split(" ", 2)
    length = int(headers.get("content-length", "0"))
    return method, path, headers, await received.receive_exactly(length) if length else b""


def _head(answer: Reply, **more: str) -> bytes:
    fields = {**more, **dict(answer.headers)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {answer.status} Scripted\r\n{lines}\r\n".encode()


async def _send_whole(stream: SocketStream, answer: Reply) -> None:
    body = answer.body or b""
    length = {"content-type": "application/json", "content-length": str(len(body))}
    await stream.send(_head(answer, **length) + body)


async def _send_events(stream: SocketStream, answer: Reply) -> None:
    frame = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
    pending = _head(answer, **frame)
    if answer.body is not None:
        pending += _chunk(answer.body)
    for event in answer.events:
        if isinstance(event, Hold):
            await stream.send(pending)
            pending = b""
            await event.wait()
        else:
            pending += _chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    await stream.send(pending + (b"" if answer.cut else _chunk(b"")))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
