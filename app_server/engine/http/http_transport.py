"""Sends requests over httpcore2, the transport of httpx2, with bounds on the responses. Imports httpcore2 at the top,
so import this module late.

Requests to providers of models use this module directly. What httpx2 adds to a request (a client, its own URL, headers
and response) would make the first turn of a process wait for its import (docs/adr/0119). All other requests use
`http_client`, which sends over this transport.
"""

from __future__ import annotations

import logging
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager

import anyio
import httpcore2

from app_server.engine.http import content
from app_server.engine.http.address import Address, address
from app_server.engine.http.interface import Fault, HttpFailure, HttpRequest, TrustUnavailable
from app_server.engine.http.pool import CONNECTED, PoolManager
from app_server.engine.support.worker_threads import PIECE_BYTES, YieldBudget

CONNECT_SECONDS = 15.0
CLOSE_SECONDS = 1.0
UNUSABLE = (
    ValueError,
    ImportError,
    RuntimeError,
    httpcore2.UnsupportedProtocol,
    httpcore2.LocalProtocolError,
)
"""Exceptions of a request that cannot be sent: an invalid address, a SOCKS proxy without the package for it, an invalid
header.
"""

BROKEN = (httpcore2.NetworkError, httpcore2.ProtocolError)


class HttpcoreResponse:
    """An open `HttpResponse`."""

    def __init__(self, response: httpcore2.Response) -> None:
        self.status = response.status
        self.raw_headers = response.headers
        self.headers: Mapping[str, str] = _joined(response.headers)
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        budget = YieldBudget()
        try:
            encoding = self.headers.get("content-encoding")
            decoder = content.ContentDecoder(encoding) if encoding else None
            # A generator that is left open would be closed by a separate task.
            async with aclosing(self._response.aiter_stream()) as stream:
                async for chunk in stream:
                    for piece in _pieces(chunk) if decoder is None else decoder.feed(chunk):
                        await budget.spend(len(piece))
                        if piece:
                            yield piece
            if decoder is not None:
                decoder.close()
        except content.UnsupportedEncoding as error:
            raise HttpFailure(
                Fault.ENCODED, f"an answer encoded as {error}, which nobody asked for"
            ) from error
        except content.ExpandsTooMuch as error:
            raise HttpFailure(
                Fault.TOO_LARGE, f"compressed data that becomes more than {content.MAX_RATIO} times as large"
            ) from error
        except httpcore2.TimeoutException as error:
            raise HttpFailure(Fault.IDLE, "the answer paused for too long") from error
        except (*BROKEN, zlib.error) as error:
            raise HttpFailure(Fault.CUT, str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        """End the response, within a bound, even if the task is cancelled."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._response.aclose()


class HttpTransport:
    """Sends requests, which share connections. `env` is the user's environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # httpcore2 logs whole requests, whose headers contain keys.
        logging.getLogger("httpcore2").setLevel(logging.WARNING)
        self._routes = PoolManager(env)

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpcoreResponse]:
        with answered_within(request.header_seconds), begun():
            built = _built(request, address(request.url))
            route = await self._routes.find(request.url)
            response = HttpcoreResponse(await route.handle_async_request(built))
        try:
            yield response
        finally:
            await response.aclose()

    async def open(self, request: httpcore2.Request, url: str) -> HttpcoreResponse:
        """Send a request, and return its response once it has begun; the caller closes it. Raises HttpFailure."""
        with begun():
            route = await self._routes.find(url)
            return HttpcoreResponse(await route.handle_async_request(request))

    async def aclose(self) -> None:
        await self._routes.aclose()


def _pieces(chunk: bytes) -> Sequence[bytes]:
    if len(chunk) <= PIECE_BYTES:
        return (chunk,)
    return [chunk[at : at + PIECE_BYTES] for at in range(0, len(chunk), PIECE_BYTES)]


@contextmanager
def answered_within(seconds: float) -> Iterator[None]:
    """Raise HttpFailure if the response has not begun in time."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise HttpFailure(Fault.HEADERS_LATE, "no answer in time") from error


@contextmanager
def begun() -> Iterator[None]:
    """Raise HttpFailure for a request that cannot be sent as it is, or that has no response."""
    CONNECTED.set(False)
    try:
        yield
    except TrustUnavailable as error:
        raise HttpFailure(Fault.UNTRUSTED, str(error)) from error
    except UNUSABLE as error:
        raise HttpFailure(Fault.UNTRUSTED, "the address, the proxy or a header cannot be used") from error
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.ProxyError) as error:
        refused = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))
        fault = Fault.UNTRUSTED if refused else Fault.UNREACHABLE
        raise HttpFailure(fault, _reason(error)) from error
    except httpcore2.TimeoutException as error:
        raise HttpFailure(Fault.HEADERS_LATE, "no answer in time") from error
    except BROKEN as error:
        raise HttpFailure(Fault.NO_ANSWER, _reason(error), reused_connection=not CONNECTED.get()) from error


def wire_headers(request: HttpRequest) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request in the form that is sent; they never request an encoding."""
    headers = [(b"accept-encoding", b"identity")]
    headers += [
        (name.encode("ascii"), value.encode("utf-8"))
        for name, value in request.headers.items()
        if name.lower() != "accept-encoding"
    ]
    return headers


def timeouts(request: HttpRequest, connect_seconds: float = CONNECT_SECONDS) -> dict[str, float | None]:
    """Return the limits of a request, in seconds; it does not wait for a free connection."""
    idle = request.idle_seconds
    return {"connect": connect_seconds, "read": idle, "write": idle, "pool": None}


def _built(request: HttpRequest, to: Address) -> httpcore2.Request:
    """Return a request in httpcore2's form."""
    body = request.body or b""
    headers = [(b"host", to.host_header), *wire_headers(request)]
    if body or request.method not in ("GET", "HEAD"):
        headers.append((b"content-length", b"%d" % len(body)))
    if to.authorization is not None and not any(name.lower() == b"authorization" for name, _ in headers):
        headers.append((b"authorization", to.authorization))
    return httpcore2.Request(
        request.method,
        httpcore2.URL(scheme=to.scheme, host=to.host, port=to.port, target=to.target),
        headers=headers,
        content=body,
        extensions={"timeout": timeouts(request)},
    )


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers, with names in lower case; the values of a repeated header are joined to a list."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "replace")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(chain) < 10:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    return chain


def _reason(error: BaseException) -> str:
    """Return the most specific cause of the error, in the system's words."""
    for cause in reversed(_causes(error)):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"no encrypted connection: {cause.reason}"
        if isinstance(cause, OSError) and cause.strerror:
            # asyncio adds the address to its text; the system's own text has none.
            return os.strerror(cause.errno) if cause.errno is not None and cause.errno > 0 else cause.strerror
    return str(error) or type(error).__name__
