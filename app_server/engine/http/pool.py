"""Connections for requests: a pool for each route, direct or through a proxy, clear or encrypted. Import late, because
it imports httpcore2.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from urllib.parse import unquote, urlsplit

import anyio
import httpcore2

from app_server.engine.http import trust_store
from app_server.engine.http.address import proxy_for
from app_server.engine.support.worker_threads import run_in_thread

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")

SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]

CONNECTED: ContextVar[bool] = ContextVar("CONNECTED")
"""Whether the request of the current task opened a connection. To learn this by httpcore2's own `trace`, a callback
would have to be awaited at each step.
"""


class ObservedNetwork(httpcore2.AnyIOBackend):
    """Connects like httpcore2, and sets `CONNECTED`."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        CONNECTED.set(True)
        return await super().connect_tcp(host, port, timeout, local_address, socket_options)


MAX_IDLE_CONNECTIONS = 10
"""Maximum number of idle connections that are kept for one route. A burst of requests may open more, which are closed
after it.
"""

IDLE_CONNECTION_SECONDS = 60.0

MAX_CONNECTIONS = 1000
"""Maximum number of connections at once on one route. There is one for each pending request, and each conversation has
a few of these.
"""


class PoolManager:
    """One connection pool for each route."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._routes: dict[tuple[bool, str | None], httpcore2.AsyncConnectionPool] = {}
        self._last: tuple[str, httpcore2.AsyncConnectionPool] | None = None
        """URL of the last request, and its pool."""
        self._trust: ssl.SSLContext | None = None
        self._opening = anyio.Lock()

    async def find(self, url: str) -> httpcore2.AsyncConnectionPool:
        """Return the pool for a URL. Raises ValueError if the proxy cannot be used, and TrustUnavailable."""
        if self._last is not None and self._last[0] == url:
            return self._last[1]
        found = await self._route(url)
        self._last = url, found
        return found

    async def _route(self, url: str) -> httpcore2.AsyncConnectionPool:
        encrypted = not url.lower().startswith("http://")
        proxy = proxy_for(url, self._env)
        found = self._routes.get((encrypted, proxy))
        if found is not None:
            return found
        async with self._opening:
            if (encrypted, proxy) not in self._routes:
                self._routes[encrypted, proxy] = await self._open(proxy, encrypted=encrypted)
            return self._routes[encrypted, proxy]

    async def aclose(self) -> None:
        routes = list(self._routes.values())
        self._routes.clear()
        self._last = None
        for route in routes:
            await route.aclose()

    async def _open(self, proxy: str | None, *, encrypted: bool) -> httpcore2.AsyncConnectionPool:
        if self._trust is None and (encrypted or (proxy or "").startswith("https:")):
            # Loading takes a tenth of a second; a plain connection needs no certificates.
            self._trust = await run_in_thread(trust_store.trust_store, self._env)
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._trust,
            proxy=named_proxy(proxy, self._trust),
            network_backend=ObservedNetwork(),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_CONNECTION_SECONDS,
        )


def named_proxy(url: str | None, trust: ssl.SSLContext | None) -> httpcore2.Proxy | None:
    """Return the proxy at an address; None without an address. Raises ValueError for an invalid one."""
    if url is None:
        return None
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in PROXY_SCHEMES:
        raise ValueError("not the address of a proxy")
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    plain = httpcore2.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port, target="/")
    return httpcore2.Proxy(url=plain, auth=auth, ssl_context=trust if parts.scheme == "https" else None)
