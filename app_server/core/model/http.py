"""HTTP as the model client sees it: one request, one answer whose bytes come in chunks.

The seam between deciding and doing: what is behind it is `http_transport`, which is imported when the first
request is made, because most of what a server does needs no HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import anyio.to_thread

from protocol.records import dataclass

if TYPE_CHECKING:
    from app_server.core.model.http_transport import HttpTransport


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    idle_seconds: float
    """The longest pause between two chunks of the answer."""
    header_seconds: float
    """The longest wait until the answer begins."""


class HttpAnswer(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body, decoded, as it comes, in pieces of bounded size between which other tasks run. Raises
        HttpFailure.
        """
        ...


class Fault(StrEnum):
    """Where a request broke."""

    UNREACHABLE = "unreachable"
    """No connection."""
    UNTRUSTED = "untrusted"
    """A connection, but not to whom it should be; or a URL that leads nowhere."""
    NO_ANSWER = "no answer"
    """The connection ended before an answer began."""
    HEADERS_LATE = "headers late"
    IDLE = "idle"
    CUT = "cut"
    """The answer broke off, or is no HTTP."""
    TOO_LARGE = "too large"
    """More than is taken of one answer."""
    ENCODED = "encoded"
    """In a way that is not undone here."""


class HttpFailure(Exception):
    """A request that got no answer, or not all of it."""

    def __init__(self, fault: Fault, reason: str, *, reused_connection: bool = False) -> None:
        super().__init__(reason)
        self.fault, self.reason = fault, reason
        self.reused_connection = reused_connection
        """The other side may have closed the connection before it saw the request."""


class Http(Protocol):
    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpAnswer]:
        """Follows no redirect. Raises HttpFailure on entry. Leaving the context ends the answer."""
        ...


class LazyHttp:
    """Connections shared by all conversations of a server."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._transport: HttpTransport | None = None

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpAnswer]:
        transport = await self._ready()
        async with transport.send(request) as answer:
            yield answer

    async def warm_up(self) -> None:
        """Do now what the first request would have to wait for."""
        await self._ready()

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _ready(self) -> HttpTransport:
        if self._transport is None:
            loaded = await anyio.to_thread.run_sync(_load)
            self._transport = self._transport or loaded(self._env)
        return self._transport


def _load() -> type[HttpTransport]:
    from app_server.core.model.http_transport import HttpTransport  # noqa: PLC0415 - slow to import

    return HttpTransport
