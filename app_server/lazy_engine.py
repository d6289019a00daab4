"""The engine, loaded when the first conversation is opened or while the server is idle.

A client that only lists stored conversations does not wait for a quarter of all imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app_server.core.config.types import Config
from app_server.core.lazy import Lazy
from app_server.core.opening import Opened, Origin
from app_server.core.threads import run_in_thread

if TYPE_CHECKING:
    from app_server.assembly import Assembled
    from app_server.core.mcp.mcp_manager import McpManager


class LazyEngine:
    """Opens conversations and lists models."""

    def __init__(self, assemble: Lazy[Callable[[], Assembled]]) -> None:
        """Loading imports the engine, possibly in a thread. The loaded function then assembles it in the event loop."""
        self._assemble = assemble
        self._assembled: Assembled | None = None

    async def open(self, config: Config, origin: Origin) -> Opened:
        """As `Engine.open`. It blocks the event loop while it loads, so that responses keep the order of their
        requests.
        """
        return await self._ready().engine.open(config, origin)

    async def names(self, config: Config) -> tuple[str, ...]:
        return await self._ready().models.names(config)

    def mcp_alone(self, config: Config) -> McpManager:
        """MCP servers of no conversation, not started yet."""
        return self._ready().adapters.mcp_alone(config)

    async def warm_up(self) -> None:
        await run_in_thread(self._assemble.get)
        await run_in_thread(self._ready().engine.load_turns)
        await self._ready().models.warm_up()

    async def aclose(self) -> None:
        if self._assembled is not None:
            await self._assembled.models.aclose()
            await self._assembled.adapters.close()

    def _ready(self) -> Assembled:
        if self._assembled is None:
            self._assembled = self._assemble.get()()
        return self._assembled
