"""HTTP, loaded when the first request is made: most of what a server does needs none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import ClassVar, Protocol

from app_server.core.http.exchange import Http, HttpRequest, HttpResponse
from app_server.core.lazy import Lazy
from app_server.core.threads import run_in_thread


class _Loaded(Http, Protocol):
    async def aclose(self) -> None: ...


class LazyHttp:
    """An `Http` over httpx2 whose connections its users share. `env` is the user's environment."""

    _KIND: ClassVar[Lazy[Callable[[Mapping[str, str]], _Loaded]]] = Lazy(
        lambda: import_module("app_server.core.http.client").HttpClient
    )

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._loaded: _Loaded | None = None

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        loaded = await self._ready()
        async with loaded.send(request) as response:
            yield response

    async def warm_up(self) -> None:
        """Do now what the first request would have to wait for."""
        await self._ready()

    async def aclose(self) -> None:
        if self._loaded is not None:
            await self._loaded.aclose()
            self._loaded = None

    async def _ready(self) -> _Loaded:
        if self._loaded is None:
            kind = await run_in_thread(self._KIND.get)
            self._loaded = self._loaded or kind(self._env)
        return self._loaded


class LazyProviderHttp(LazyHttp):
    """An `Http` for providers of models, which a first turn waits for: over httpcore2 without the client above it."""

    _KIND = Lazy(lambda: import_module("app_server.core.http.transport").HttpTransport)
