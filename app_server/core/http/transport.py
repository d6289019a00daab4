"""Requests over httpcore, the engine of httpx, with what decodes their bodies. Imports it at the top, so import this
module late.

A model client does not need what httpx adds (cookies, redirects, its own request and response objects), which takes as
long as the rest of a short request (docs/adr/0018). Bodies of gzip and deflate are decompressed in pieces of bounded
size: requests send `accept-encoding: identity`, but some servers compress nevertheless. Those that expand too much are
rejected: deflate can expand one byte to a thousand.
"""

from __future__ import annotations

import logging
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager

import anyio
import httpcore

from app_server.core.http.address import Address, address
from app_server.core.http.connections import CONNECTED, RouteTable
from app_server.core.http.exchange import Fault, HttpFailure, HttpRequest, TrustUnavailable
from app_server.core.threads import PIECE_BYTES, YieldBudget

INPUT_BYTES = 4 * 1024
"""Compressed bytes that zlib is given at once. It copies what it has not used yet with each piece of output."""

UNQUESTIONED_BYTES = 16 * 1024 * 1024
"""So much may come of however few compressed bytes: short streams that repeat themselves compress very well."""

MAX_RATIO = 100
"""Beyond that, what one compressed byte may become on average. Event streams of real answers reach 10 to 30; traps have
several hundred, up to deflate's limit of 1032.
"""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP = frozenset({"gzip", "x-gzip"})
_DEFLATE = "deflate"
_NOT_DECODED = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})
"""Compressions that are not undone here. Any other word is a mistake that changes nothing: some servers write `utf-8`
or `none` there.
"""


class UnsupportedEncoding(Exception):
    """The body is encoded in a way that nobody asked for and that is not undone here."""


class ExpandsTooMuch(Exception):
    """So few bytes become so many that the body is a trap or an accident."""


class ContentDecoder:
    """Undoes what a `content-encoding` header names: one encoding at most. Raises UnsupportedEncoding."""

    def __init__(self, content_encoding: str) -> None:
        words = [word.strip() for word in content_encoding.lower().split(",")]
        names = [word for word in words if word not in ("", "identity")]
        if len(names) > 1 or not _NOT_DECODED.isdisjoint(names):
            raise UnsupportedEncoding(", ".join(names)[:80])
        self._gzip = not _GZIP.isdisjoint(names)
        self._deflate = _DEFLATE in names
        self._inflater = zlib.decompressobj(_GZIP_WINDOW) if self._gzip else None
        self._head = b""
        """The beginning of deflate, until it is known which of its two forms it has."""
        self._taken = self._given = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return what becomes of these bytes, in pieces of at most PIECE_BYTES. An empty piece stands for work that
        was done. Raises zlib.error and ExpandsTooMuch.
        """
        if not self._gzip and not self._deflate:
            for start in range(0, len(data), PIECE_BYTES):
                yield data[start : start + PIECE_BYTES]
            return
        for start in range(0, len(data), INPUT_BYTES):
            yield from self._inflate(data[start : start + INPUT_BYTES])

    def close(self) -> None:
        """End the bytes. Raises zlib.error where that is too early."""
        if self._head or (self._inflater is not None and self._taken and not self._inflater.eof):
            raise zlib.error("the compressed data is cut off")

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        self._taken += len(data)
        if self._inflater is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            self._inflater = zlib.decompressobj(_deflate_window(data))
        while data:
            if self._inflater.eof:
                data = self._next_member(data)
                if not data:
                    return
            piece = self._inflater.decompress(data, PIECE_BYTES)
            data = self._inflater.unconsumed_tail or self._inflater.unused_data
            yield self._counted(piece)
            while len(piece) == PIECE_BYTES and not data and not self._inflater.eof:
                # All bytes are in, and not all that they become was let out.
                piece = self._inflater.decompress(b"", PIECE_BYTES)
                yield self._counted(piece)

    def _next_member(self, data: bytes) -> bytes:
        """Begin the next stream: gzip may be several, padded with zeros. Raises zlib.error for deflate."""
        if not self._gzip:
            raise zlib.error("bytes follow the end of the compressed data")
        data = data.lstrip(b"\0")
        if data:
            self._inflater = zlib.decompressobj(_GZIP_WINDOW)
        return data

    def _counted(self, piece: bytes) -> bytes:
        self._given += len(piece)
        if self._given > UNQUESTIONED_BYTES and self._given > MAX_RATIO * self._taken:
            raise ExpandsTooMuch
        return piece


def _deflate_window(head: bytes) -> int:
    """Return the window for deflate. HTTP asks for a frame, which begins with a header; some servers send none."""
    method, window, checked = head[0] & 0x0F, head[0] >> 4, int.from_bytes(head[:2], "big") % 31
    framed = method == zlib.DEFLATED and window <= 7 and checked == 0
    return zlib.MAX_WBITS if framed else -zlib.MAX_WBITS


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
        refused = any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))
        fault = Fault.UNTRUSTED if refused else Fault.UNREACHABLE
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
