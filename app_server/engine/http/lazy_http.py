"""HTTP clients that are loaded at the first request: most work of a server needs none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from app_server.engine.http import http_client, http_transport
from app_server.engine.http.interface import Http, HttpRequest, HttpResponse
from app_server.engine.support.worker_threads import run_in_thread


class _Loaded(Http, Protocol):
    async def aclose(self) -> None: ...


class LazyHttp:
    """An `Http` over httpx2; all its users share its connections. `env` is the user's environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._loaded: _Loaded | None = None

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a request by the client, which is loaded before if it has to be."""
        return self._send_first(request) if self._loaded is None else self._loaded.send(request)

    @asynccontextmanager
    async def _send_first(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        async with (await self._ready()).send(request) as response:
            yield response

    async def warm_up(self) -> None:
        """Load the client now, so that the first request need not wait for it."""
        await self._ready()

    async def aclose(self) -> None:
        if self._loaded is not None:
            await self._loaded.aclose()
            self._loaded = None

    async def _ready(self) -> _Loaded:
        if self._loaded is None:
            kind = await run_in_thread(self._kind)
            self._loaded = self._loaded or kind(self._env)
        return self._loaded

    def _kind(self) -> Callable[[Mapping[str, str]], _Loaded]:
        """Return the class of the client. Its module is loaded by this, which is slow."""
        return http_client.HttpClient


class LazyProviderHttp(LazyHttp):
    """An `Http` for providers of models. It uses httpcore2 directly, without httpx2, because a first turn waits
    for it.
    """

    def _kind(self) -> Callable[[Mapping[str, str]], _Loaded]:
        return http_transport.HttpTransport
