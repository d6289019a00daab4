"""A scripted model: a loopback HTTP server that implements the Responses API with server-sent events.

An author, a function from the request to the reply, supplies the content, so that a script can react to the server.
`reply`, `says`, `calls` and `runs` build the events. All requests are recorded.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from app_server_protocol.encoding import Json

LARGEST_HEAD = 1 << 16
LARGEST_BODY = 1 << 26

EVENT_STREAM = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
LAST_CHUNK = b"0\r\n\r\n"


class ReceivedRequest(Struct, frozen=True):
    line: str
    """Request line, such as `POST /v1/responses HTTP/1.1`."""
    headers: dict[str, str]
    """Headers, with names in lower case."""
    body: bytes
    connection: int
    """Number of its connection, counted from 1."""

    @property
    def method(self) -> str:
        return self.line.split(" ", 2)[0]

    @property
    def path(self) -> str:
        return self.line.split(" ", 2)[1]


class LoopbackServer(ABC):
    """A loopback HTTP server. `async with server.serving() as base_url` serves until the block ends."""

    _connections = 0

    @abstractmethod
    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        """Write the response. Return False to end the connection."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, self.serve_connection, name="loopback server")
            yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1"
            group.cancel_scope.cancel()

    async def serve_connection(self, stream: SocketStream) -> None:
        """Serve the requests of one connection until the other side closes or loses it."""
        self._connections += 1
        connection = self._connections
        async with stream:
            received = BufferedByteReceiveStream(stream)
            try:
                while await self.respond(await _read_request(received, connection), stream):
                    pass
            except (
                anyio.EndOfStream,
                anyio.IncompleteRead,
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
            ):
                return


async def _read_request(received: BufferedByteReceiveStream, connection: int) -> ReceivedRequest:
    head = (await received.receive_until(b"\r\n\r\n", LARGEST_HEAD)).decode("latin-1")
    line, *rest = head.split("\r\n")
    pairs = (field.partition(":") for field in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = min(int(headers.get("content-length", "0")), LARGEST_BODY)
    body = await received.receive_exactly(length) if length else b""
    return ReceivedRequest(line, headers, body, connection)


def response_head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode()


def whole_response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a response with its length. It is JSON unless the headers say otherwise."""
    named = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    return response_head(status, named) + body


def chunk(data: bytes) -> bytes:
    """Return a piece of a chunked response."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event_chunk(event: Json) -> bytes:
    """Return a server-sent event as one chunk."""
    return chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


class Reply(Struct, frozen=True):
    """One answer of the model: its events, and the pause between them in seconds."""

    events: tuple[Json, ...]
    gap: float = 0.0


class Usage(Struct, frozen=True):
    """Usage of a reply, in tokens."""

    input: int = 10
    output: int = 5

    @property
    def total(self) -> int:
        return self.input + self.output


USUAL = Usage()


Author = Callable[[Json], Reply]
"""Function that returns the next reply for the body of a request."""


def reply(*events: Json, usage: Usage = USUAL, gap: float = 0.0) -> Reply:
    """Return a reply with events between `response.created` and `response.completed`, which has the usage."""
    completed = {
        "id": "resp-1",
        "usage": {"input_tokens": usage.input, "output_tokens": usage.output, "total_tokens": usage.total},
    }
    created = {"type": "response.created", "response": {"id": "resp-1"}}
    return Reply((created, *events, {"type": "response.completed", "response": completed}), gap)


def says(text: str, item_id: str = "msg-1") -> tuple[Json, ...]:
    """Return the events of a message, word by word and then whole."""
    deltas = re.findall(r"\s*\S+", text)
    return (
        {"type": "response.output_item.added", "item": _message("", item_id)},
        *({"type": "response.output_text.delta", "delta": delta} for delta in deltas),
        {"type": "response.output_item.done", "item": _message(text, item_id)},
    )


def calls(name: str, arguments: Json, call_id: str) -> Json:
    """Return a call of a function tool."""
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
    return {"type": "response.output_item.done", "item": item}


def runs(command: Sequence[str], call_id: str) -> Json:
    """Return a call of the shell tool."""
    return calls("shell", {"command": list(command)}, call_id)


class ScriptedModel(LoopbackServer):
    """A scripted model. `async with model.serving() as base_url` serves until the block ends."""

    def __init__(self, author: Author) -> None:
        self.author = author
        self.requests: list[Json] = []

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
