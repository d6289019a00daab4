"""The connections that requests go over, kept for the next ones. Import late, as httpcore itself.

httpcore makes them: direct or through a proxy, clear or encrypted. Its pool would look at all of them for each request,
and ask and wait where there is nothing to wait for: an HTTP/1.1 connection serves one request at a time, so whoever
takes one has it alone.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import anyio
import certifi
import httpcore

from app_server.core.model.address import Address
from app_server.core.model.network import GatheringNetwork
from app_server.core.model.proxies import proxy_for
from app_server.core.threads import run_in_thread
from protocol.records import dataclass

MAX_IDLE_CONNECTIONS = 10
"""Kept for one way out: what a burst of requests has opened beyond that is closed after it."""

IDLE_CONNECTION_SECONDS = 60.0
CLOSE_SECONDS = 1.0

Origin = tuple[str, bytes, int | None]


@dataclass(frozen=True, slots=True)
class Taken:
    """A connection that one request has for itself."""

    connection: httpcore.AsyncConnectionInterface
    origin: Origin
    reused: bool
    """It has served a request before, so the other side may have closed it meanwhile."""


class WayOut:
    """Clear or encrypted, direct or through one proxy."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool
        """Only makes connections; it is never asked to keep one."""
        self._idle: list[tuple[Origin, httpcore.AsyncConnectionInterface]] = []
        """The one that was used last comes last."""

    async def take(self, to: Address) -> Taken:
        """One that is open, else a new one, which connects with its first request. Raises what httpcore does for a
        proxy that it cannot use.
        """
        origin = (to.scheme, to.host, to.port)
        for place in reversed(range(len(self._idle))):
            if self._idle[place][0] != origin:
                continue
            _, connection = self._idle.pop(place)
            if not connection.has_expired():
                return Taken(connection, origin, reused=True)
            await _closed(connection)
        url = httpcore.URL(scheme=to.scheme, host=to.host, port=to.port, target=b"/")
        return Taken(self._pool.create_connection(url.origin), origin, reused=False)

    async def give_back(self, taken: Taken) -> None:
        """Keeps it where it can serve another request, and closes it where not."""
        # One that never came about counts as idle, too.
        if taken.connection.is_closed() or not taken.connection.is_idle():
            await _closed(taken.connection)
            return
        self._idle.append((taken.origin, taken.connection))
        while len(self._idle) > MAX_IDLE_CONNECTIONS:
            _, oldest = self._idle.pop(0)
            await _closed(oldest)

    async def aclose(self) -> None:
        while self._idle:
            _, connection = self._idle.pop()
            await _closed(connection)


class WaysOut:
    """Found by the address and the proxy that the environment names for it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._ways: dict[tuple[bool, str | None], WayOut] = {}
        self._opening = anyio.Lock()

    async def find(self, url: str) -> WayOut:
        """Raises ValueError, ImportError or RuntimeError where the proxy cannot be used."""
        encrypted = not url.lower().startswith("http://")
        proxy = proxy_for(url, self._env)
        found = self._ways.get((encrypted, proxy))
        if found is not None:
            return found
        async with self._opening:
            if (encrypted, proxy) not in self._ways:
                # Reading the certificates takes a tenth of a second; a plain connection needs none.
                context = await run_in_thread(_certificates) if encrypted else None
                self._ways[encrypted, proxy] = WayOut(_factory(proxy, context))
            return self._ways[encrypted, proxy]

    async def aclose(self) -> None:
        ways = list(self._ways.values())
        self._ways.clear()
        for way in ways:
            await way.aclose()


async def _closed(connection: httpcore.AsyncConnectionInterface) -> None:
    if connection.is_closed():
        return
    with anyio.move_on_after(CLOSE_SECONDS, shield=True):
        await connection.aclose()


def _factory(proxy: str | None, context: ssl.SSLContext | None) -> httpcore.AsyncConnectionPool:
    return httpcore.AsyncConnectionPool(
        ssl_context=context,
        proxy=None if proxy is None else _proxy(proxy),
        network_backend=GatheringNetwork(),
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


def _certificates() -> ssl.SSLContext:
    """The system's, which may hold a company's own, and the usual public ones."""
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=certifi.where())
    return context
