"""What the parts of the MCP client agree on: messages as they come in, the link that carries them, how
processes start.

A link is one connection to one server, whatever it runs over. It knows lines and HTTP; the client knows what
is said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Protocol

from anyio.abc import ByteReceiveStream, ByteSendStream

from app_server.core.errors import CoreError
from protocol.base import Json
from protocol.records import dataclass


class McpFailure(CoreError):
    """Something that a server was asked cannot be had; the message says why, without secrets."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one of our requests."""

    id: int
    result: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One of our requests came to nothing. `reason` is the text for whoever asked."""

    id: int
    reason: str
    code: int | None = None
    """The error code that the server gave, if it was the server."""


@dataclass(frozen=True, slots=True)
class Request:
    """Something that the server asks of us."""

    id: int | str
    method: str
    params: Json = field(default=None, repr=False)


Incoming = Answer | Refusal | Request
Take = Callable[[Incoming], None]


class Link(Protocol):
    """One open connection. `send` waits until there is room; `send_soon` drops the message where there is
    none."""

    async def run(self, take: Take) -> None:
        """Hands over what comes in; returns when the connection is over."""

    async def send(self, message: Json) -> None: ...

    def send_soon(self, message: Json) -> None: ...

    def agreed(self, version: str) -> None:
        """The protocol version that both sides will speak from here on."""


class McpProcess(Protocol):
    """A running server process. Killing it kills everything that it started."""

    @property
    def stdin(self) -> ByteSendStream: ...
    @property
    def stdout(self) -> ByteReceiveStream: ...
    @property
    def stderr(self) -> ByteReceiveStream: ...

    async def wait(self) -> None:
        """Returns once it has ended. Does not wait for the streams, which others may hold open."""

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def close(self) -> None:
        """Lets go of the streams."""


class ProcessSpawner(Protocol):
    """Starts server processes so that none outlives this one, not even after `kill -9`."""

    async def open(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> McpProcess:
        """Raises OSError where the program cannot be executed."""


@dataclass(frozen=True, slots=True)
class ElicitationRequest:
    """A question of a server to the user, asked while one of its tools runs."""

    server: str
    message: str
    requested_schema: Json = None


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """`action` is accept, decline or cancel; `content` goes with accept."""

    action: str = "decline"
    content: Json = None


Elicit = Callable[[ElicitationRequest], Awaitable[ElicitationAnswer]]
OpenLink = Callable[[], AbstractAsyncContextManager[Link]]
