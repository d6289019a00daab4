"""Requests over httpcore, the engine of httpx. Imports it at the top, so import this module late.

What httpx adds (cookies, redirects, its own objects for requests and answers) is nothing that a model client needs,
and it takes as long as everything else about a short request (docs/adr/0018).
"""

from __future__ import annotations

import logging
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
import certifi
import httpcore

from app_server.core.model.address import Address, address
from app_server.core.model.content import Decoder
from app_server.core.model.http import Fault, HttpFailure, HttpRequest
from app_server.core.model.network import GatheringNetwork
from app_server.core.model.proxies import proxy_for
from protocol.base import Json
from protocol.records import dataclass

CONNECT_SECONDS = 15.0
CLOSE_SECONDS = 1.0
UNUSABLE = (ValueError, ImportError, RuntimeError, httpcore.UnsupportedProtocol, httpcore.LocalProtocolError)
"""An address that is none; a SOCKS proxy without the package for it; a header that cannot be sent."""

BROKEN = (httpcore.NetworkError, httpcore.ProtocolError)

MAX_IDLE_CONNECTIONS = 10
IDLE_CONNECTION_SECONDS = 60.0

POOL_REQUESTS = 32
"""So many requests one pool serves at once. For each it looks at all of its connections, so one pool for a thousand
requests would make each of them wait for the thousand.
"""


class Answer:
    """An open response."""

    def __init__(self, response: httpcore.Response) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = _joined(response.headers)
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        encoding = self.headers.get("content-encoding")
        decoder = Decoder(encoding) if encoding else None
        try:
            # It is a generator, though it is declared as less; left open, it would be ended by a task of its own.
            async with aclosing(self._response.aiter_stream()) as stream:  # type: ignore[type-var]
                async for chunk in stream:
                    if data := decoder.feed(chunk) if decoder else chunk:
                        yield data
        except httpcore.TimeoutException as error:
            raise HttpFailure(Fault.IDLE, "the answer paused for too long") from error
        except (*BROKEN, zlib.error) as error:
            raise HttpFailure(Fault.CUT, str(error) or type(error).__name__) from error


@dataclass(slots=True)
class Pool:
    connections: httpcore.AsyncConnectionPool
    requests: int = 0


class WayOut:
    """Clear or encrypted, direct or through a proxy, with as many pools as its requests need."""

    def __init__(self, make: Callable[[], httpcore.AsyncConnectionPool]) -> None:
        self._make = make
        self.pools: list[Pool] = []

    def take(self) -> Pool:
        """Raises what `UNUSABLE` names."""
        pool = next((pool for pool in self.pools if pool.requests < POOL_REQUESTS), None)
        if pool is None:
            pool = Pool(self._make())
            self.pools.append(pool)
        pool.requests += 1
        return pool

    def give_back(self, pool: Pool) -> Pool | None:
        """The pool, if it is to be closed: the first one serves whatever comes next."""
        pool.requests -= 1
        if pool.requests or pool is self.pools[0]:
            return None
        self.pools.remove(pool)
        return pool


class HttpTransport:
    """Requests, and the connections that they share."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # It logs whole requests, and their headers hold keys.
        logging.getLogger("httpcore").setLevel(logging.WARNING)
        self._env = env
        self._ways: dict[tuple[bool, str | None], WayOut] = {}
        self._opening = anyio.Lock()

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[Answer]:
        try:
            way = await self._way(request.url)
            pool = way.take()
        except UNUSABLE as error:
            raise HttpFailure(Fault.UNTRUSTED, "the address or the proxy cannot be used") from error
        try:
            response = await self._response(pool.connections, request)
            try:
                yield Answer(response)
            finally:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await response.aclose()
        finally:
            if (idle := way.give_back(pool)) is not None:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await idle.connections.aclose()

    async def aclose(self) -> None:
        pools = [pool for way in self._ways.values() for pool in way.pools]
        self._ways.clear()
        for pool in pools:
            await pool.connections.aclose()

    async def _response(self, pool: httpcore.AsyncConnectionPool, request: HttpRequest) -> httpcore.Response:
        reused = True

        async def trace(event: str, details: Json) -> None:
            nonlocal reused
            if event == "connection.connect_tcp.started":
                reused = False

        try:
            built = _built(request, address(request.url))
            built.extensions["trace"] = trace
            with anyio.fail_after(request.header_seconds):
                return await pool.handle_async_request(built)
        except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError) as error:
            fault = Fault.UNTRUSTED if _certificate_refused(error) else Fault.UNREACHABLE
            raise HttpFailure(fault, _reason(error)) from error
        except UNUSABLE as error:
            raise HttpFailure(Fault.UNTRUSTED, "the address or a header cannot be used") from error
        except (TimeoutError, httpcore.TimeoutException) as error:
            raise HttpFailure(Fault.HEADERS_LATE, "no answer in time") from error
        except BROKEN as error:
            raise HttpFailure(Fault.NO_ANSWER, _reason(error), reused_connection=reused) from error

    async def _way(self, url: str) -> WayOut:
        encrypted = not url.lower().startswith("http://")
        proxy = proxy_for(url, self._env)
        found = self._ways.get((encrypted, proxy))
        if found is not None:
            return found
        async with self._opening:
            if (encrypted, proxy) not in self._ways:
                # Reading the certificates takes a tenth of a second; a plain connection needs none.
                context = await anyio.to_thread.run_sync(_certificates) if encrypted else None
                self._ways[encrypted, proxy] = WayOut(lambda: _new_pool(proxy, context))
            return self._ways[encrypted, proxy]


def _new_pool(proxy: str | None, context: ssl.SSLContext | None) -> httpcore.AsyncConnectionPool:
    """Raises what `UNUSABLE` names."""
    way = None if proxy is None else _proxy(proxy)
    return httpcore.AsyncConnectionPool(
        ssl_context=context,
        proxy=way,
        network_backend=GatheringNetwork(),
        max_connections=None,
        max_keepalive_connections=MAX_IDLE_CONNECTIONS,
        keepalive_expiry=IDLE_CONNECTION_SECONDS,
    )


def _proxy(url: str) -> httpcore.Proxy:
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("not the address of a proxy")
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    plain = httpcore.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port, target="/")
    context = _certificates() if parts.scheme == "https" else None
    return httpcore.Proxy(url=plain, auth=auth, ssl_context=context)


def _built(request: HttpRequest, to: Address) -> httpcore.Request:
    body = request.body or b""
    headers = [(b"host", to.host_header)]
    headers += [(name.encode("ascii"), value.encode("utf-8")) for name, value in request.headers.items()]
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
        extensions={"timeout": {"connect": CONNECT_SECONDS, "read": idle, "write": idle, "pool": None}},
    )


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case; what was said more than once is one list."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "replace")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _certificates() -> ssl.SSLContext:
    """The system's, which may hold a company's own, and the usual public ones."""
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=certifi.where())
    return context


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
    """The most telling of the errors that led here, in the system's words."""
    for cause in reversed(_causes(error)):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"no encrypted connection: {cause.reason}"
        if isinstance(cause, OSError) and cause.strerror:
            # asyncio puts the address into its text; the system's own text is the plain one.
            return os.strerror(cause.errno) if cause.errno is not None and cause.errno > 0 else cause.strerror
    return str(error) or type(error).__name__
