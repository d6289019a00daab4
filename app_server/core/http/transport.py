"""Requests over httpcore, the engine of httpx. Imports it at the top, so import this module late.

A model client does not need what httpx adds (cookies, redirects, its own request and response objects), which takes as
long as the rest of a short request (docs/adr/0018).
"""

from __future__ import annotations

import logging
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import anyio
import httpcore

from app_server.core.http.address import Address, address
from app_server.core.http.connections import CONNECTED, RouteTable
from app_server.core.http.content import MAX_RATIO, ContentDecoder, ExpandsTooMuch, UnsupportedEncoding
from app_server.core.http.exchange import Fault, HttpFailure, HttpRequest, TrustUnavailable
from app_server.core.threads import YieldBudget

CONNECT_SECONDS = 15.0
CLOSE_SECONDS = 1.0
UNUSABLE = (ValueError, ImportError, RuntimeError, httpcore.UnsupportedProtocol, httpcore.LocalProtocolError)
"""An address that is none; a SOCKS proxy without the package for it; a header that cannot be sent."""

BROKEN = (httpcore.NetworkError, httpcore.ProtocolError)


class HttpcoreResponse:
    """An `HttpResponse` that is open."""

    def __init__(self, response: httpcore.Response) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = _joined(response.headers)
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        budget = YieldBudget()
        try:
            decoder = ContentDecoder(self.headers.get("content-encoding", ""))
            # It is a generator, though it is declared as less; left open, it would be ended by a task of its own.
            async with aclosing(self._response.aiter_stream()) as stream:  # type: ignore[type-var]
                async for chunk in stream:
                    for piece in decoder.feed(chunk):
                        await budget.spend(len(piece))
                        if piece:
                            yield piece
            decoder.close()
        except UnsupportedEncoding as error:
            raise HttpFailure(
                Fault.ENCODED, f"an answer encoded as {error}, which nobody asked for"
            ) from error
        except ExpandsTooMuch as error:
            raise HttpFailure(
                Fault.TOO_LARGE, f"compressed data that becomes more than {MAX_RATIO} times as large"
            ) from error
        except httpcore.TimeoutException as error:
            raise HttpFailure(Fault.IDLE, "the answer paused for too long") from error
        except (*BROKEN, zlib.error) as error:
            raise HttpFailure(Fault.CUT, str(error) or type(error).__name__) from error


class HttpTransport:
    """Requests, and the connections that they share. `env` is the user's environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # It logs whole requests, and their headers hold keys.
        logging.getLogger("httpcore").setLevel(logging.WARNING)
        self._routes = RouteTable(env)

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpcoreResponse]:
        try:
            route = await self._routes.find(request.url)
            built = built_request(request, address(request.url))
        except TrustUnavailable as error:
            raise HttpFailure(Fault.UNTRUSTED, str(error)) from error
        except UNUSABLE as error:
            raise HttpFailure(Fault.UNTRUSTED, "the address, the proxy or a header cannot be used") from error
        response = await _response(route, built, request.header_seconds)
        try:
            yield HttpcoreResponse(response)
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await response.aclose()

    async def aclose(self) -> None:
        await self._routes.aclose()


async def _response(
    route: httpcore.AsyncConnectionPool, request: httpcore.Request, seconds: float
) -> httpcore.Response:
    CONNECTED.set(False)
    try:
        with anyio.fail_after(seconds):
            return await route.handle_async_request(request)
    except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError) as error:
        fault = Fault.UNTRUSTED if _certificate_refused(error) else Fault.UNREACHABLE
        raise HttpFailure(fault, _reason(error)) from error
    except UNUSABLE as error:
        raise HttpFailure(Fault.UNTRUSTED, "the address, the proxy or a header cannot be used") from error
    except (TimeoutError, httpcore.TimeoutException) as error:
        raise HttpFailure(Fault.HEADERS_LATE, "no answer in time") from error
    except BROKEN as error:
        raise HttpFailure(Fault.NO_ANSWER, _reason(error), reused_connection=not CONNECTED.get()) from error


def built_request(
    request: HttpRequest, to: Address, connect_seconds: float = CONNECT_SECONDS
) -> httpcore.Request:
    """Return a request as httpcore sends it."""
    body = request.body or b""
    headers = [(b"host", to.host_header), (b"accept-encoding", b"identity")]
    headers += [
        (name.encode("ascii"), value.encode("utf-8"))
        for name, value in request.headers.items()
        if name.lower() != "accept-encoding"
    ]
    if body or request.method not in ("GET", "HEAD"):
        headers.append((b"content-length", b"%d" % len(body)))
    if to.authorization is not None and not any(name.lower() == b"authorization" for name, _ in headers):
        headers.append((b"authorization", to.authorization))
    idle = request.idle_seconds
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=to.scheme, host=to.host, port=to.port, target=to.target),
        headers=headers,
        content=body,
        extensions={"timeout": {"connect": connect_seconds, "read": idle, "write": idle, "pool": None}},
    )


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers with names in lower case; what was said more than once is one list."""
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


def _certificate_refused(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _reason(error: BaseException) -> str:
    """Return the most specific of the errors that led here, in the system's words."""
    for cause in reversed(_causes(error)):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"no encrypted connection: {cause.reason}"
        if isinstance(cause, OSError) and cause.strerror:
            # asyncio puts the address into its text; the system's own text is the plain one.
            return os.strerror(cause.errno) if cause.errno is not None and cause.errno > 0 else cause.strerror
    return str(error) or type(error).__name__
