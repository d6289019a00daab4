"""The interfaces between the parts of the MCP client: incoming messages, links, server processes, elicitations.

A link is one connection to one server over any transport. It knows bytes and HTTP; the client knows the methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from anyio.abc import ByteReceiveStream, ByteSendStream

from app_server.core.errors import CoreError
from protocol.base import Json
from protocol.records import dataclass


class McpFailure(CoreError):
    """A request to a server failed; the message is the reason, without secrets."""


@dataclass(frozen=True, slots=True)
class McpReply:
    """The result of one of our requests."""

    id: int
    result: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class McpError:
    """The error of one of our requests. `reason` is the text for the caller."""

    id: int
    reason: str
    code: int | None = None
    """The server's error code, if the error came from the server."""


@dataclass(frozen=True, slots=True)
class McpServerRequest:
    """A request of the server to this client."""

    id: int | str
    method: str
    params: Json = field(default=None, repr=False)


Incoming = McpReply | McpError | McpServerRequest
OnMessage = Callable[[Incoming], None]


class McpLink(Protocol):
    """One open connection. If the outgoing queue is full, `send` waits, and `send_soon` drops the message."""

    async def receive(self, on_message: OnMessage) -> None:
        """Passes incoming messages to `on_message`; returns when the connection closes."""

    async def send(self, message: Json) -> None: ...

    def send_soon(self, message: Json) -> None: ...

    def set_protocol_version(self, version: str) -> None:
        """Sets the negotiated protocol version."""


class McpProcess(Protocol):
    """A running server process. Killing it kills everything that it started."""

    @property
    def stdin(self) -> ByteSendStream: ...
    @property
    def stdout(self) -> ByteReceiveStream: ...
    @property
    def stderr(self) -> ByteReceiveStream: ...

    async def wait(self) -> None:
        """Waits for the exit of the process, but not for the end of its streams, which other processes may hold
        open.
        """

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def close(self) -> None:
        """Closes the streams."""


class ProcessSpawner(Protocol):
    """Starts server processes that never outlive this one, not even after `kill -9`."""

    async def open(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> McpProcess:
        """Raises OSError if the program cannot be executed."""


@dataclass(frozen=True, slots=True)
class ElicitationRequest:
    """A server's question to the user during a tool call."""

    server: str
    message: str
    requested_schema: Json = None
    meta: Json = None
    is_approval: bool = False
    """Asked by this program, and not by the server: whether a tool may run."""


@dataclass(frozen=True, slots=True)
class ElicitationResult:
    """`action` is accept, decline or cancel; `content` is for accept."""

    action: str = "decline"
    content: Json = None


Elicit = Callable[[ElicitationRequest], Awaitable[ElicitationResult]]
