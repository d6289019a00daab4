"""Connection pools by route: direct or through a proxy, clear or encrypted. Import late, because it imports
httpcore.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import anyio
import httpcore

from app_server.core.http.network import GatheringNetwork
from app_server.core.http.proxies import proxy_for
from app_server.core.http.trust_store import trust_store
from app_server.core.threads import run_in_thread

MAX_IDLE_CONNECTIONS = 10
"""Kept for one route: what a burst of requests has opened beyond that is closed after it."""

IDLE_CONNECTION_SECONDS = 60.0

MAX_CONNECTIONS = 1000
"""At once on one route. There are as many as requests under way, of which each conversation has a few."""


class RouteTable:
    """One connection pool for each route."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._routes: dict[tuple[bool, str | None], httpcore.AsyncConnectionPool] = {}
        self._trust: ssl.SSLContext | None = None
        self._opening = anyio.Lock()

    async def find(self, url: str) -> httpcore.AsyncConnectionPool:
        """Raises ValueError where the proxy cannot be used, and TrustUnavailable."""
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
        for route in routes:
            await route.aclose()

    async def _open(self, proxy: str | None, *, encrypted: bool) -> httpcore.AsyncConnectionPool:
        if self._trust is None and (encrypted or (proxy or "").startswith("https:")):
            # It takes a tenth of a second; a plain connection needs none.
            self._trust = await run_in_thread(trust_store, self._env)
        return httpcore.AsyncConnectionPool(
            ssl_context=self._trust,
            proxy=None if proxy is None else _proxy(proxy, self._trust),
            network_backend=GatheringNetwork(),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_CONNECTION_SECONDS,
        )


def _proxy(url: str, trust: ssl.SSLContext | None) -> httpcore.Proxy:
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("not the address of a proxy")
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    plain = httpcore.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port, target="/")
    return httpcore.Proxy(url=plain, auth=auth, ssl_context=trust if parts.scheme == "https" else None)
