"""The interface of the HTTP client: requests, streamed responses, failures. Pure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol

from app_server_protocol.values import Redacted


class HttpRequest(Redacted, frozen=True, kw_only=True):
    HIDDEN = ("url", "headers", "body")
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    idle_seconds: float
    """Longest pause between two chunks of the response, in seconds."""
    header_seconds: float
    """Longest wait until the response begins, in seconds."""


class HttpResponse(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with names in lower case."""
        ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the decoded body as it arrives, in pieces of bounded size between which other tasks run. Raises
        HttpFailure.
        """
        ...


class Fault(StrEnum):
    """Stage at which a request failed."""

    UNREACHABLE = "unreachable"
    """The connection could not be opened."""
    UNTRUSTED = "untrusted"
    """The other side of the connection is not the expected one; or the URL cannot be used."""
    NO_ANSWER = "no answer"
    """The connection ended before the response began."""
    HEADERS_LATE = "headers late"
    IDLE = "idle"
    CUT = "cut"
    """The response broke off, or is not HTTP."""
    TOO_LARGE = "too large"
    """The response exceeds a limit."""
    ENCODED = "encoded"
    """The response has an unsupported encoding."""


class HttpFailure(Exception):
    """A request without a complete response."""

    def __init__(self, fault: Fault, reason: str, *, reused_connection: bool = False) -> None:
        super().__init__(reason)
        self.fault, self.reason = fault, reason
        self.reused_connection = reused_connection
        """Whether the request used an idle connection, which the other side may have closed before it saw the
        request.
        """


class TrustUnavailable(Exception):
    """The configured certificates cannot be read. There is no fallback to other certificates."""


class Http(Protocol):
    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a request, without following redirects. Raises HttpFailure on entry. Leaving the context ends the
        response.
        """
        ...
