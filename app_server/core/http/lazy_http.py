"""The transport, loaded when the first request is made: most of what a server does needs no HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from app_server.core.http.exchange import HttpRequest, HttpResponse
from app_server.core.lazy import Lazy
from app_server.core.threads import run_in_thread

if TYPE_CHECKING:
    from app_server.core.http.transport import HttpTransport

_TRANSPORT: Lazy[type[HttpTransport]] = Lazy(
    lambda: import_module("app_server.core.http.transport").HttpTransport
)


class LazyHttp:
    """An `Http` whose connections conversations share. `env` is the user's environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._transport: HttpTransport | None = None

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        transport = await self._ready()
        async with transport.send(request) as response:
            yield response

    async def warm_up(self) -> None:
        """Do now what the first request would have to wait for."""
        await self._ready()

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _ready(self) -> HttpTransport:
        if self._transport is None:
            loaded = await run_in_thread(_TRANSPORT.get)
            self._transport = self._transport or loaded(self._env)
        return self._transport
