"""The base of tasks that run the turn loop: it calls the hooks of the turn at the loop's steps. A turn without hooks
costs a look at the disk, and loads nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app_server.engine.hooks import hook_presence
from app_server.engine.session import hook_steps
from app_server.engine.session.session_services import TurnContext
from app_server.engine.session.tasks import SessionTask
from app_server.engine.tools.tool_base import ToolContext
from app_server.engine.turn.loop import TurnStrategy

if TYPE_CHECKING:
    from app_server.engine.session.hook_steps import HookSteps


class HookedTask(SessionTask, TurnStrategy):
    """A turn with a loop and perhaps with hooks."""

    tool_turn: ToolContext
    hooks: HookSteps | None = None
    """Hooks of the turn; None if it has none, and before they are read."""

    @asynccontextmanager
    async def hooked(self) -> AsyncIterator[None]:
        """Have the hooks of the turn while the block runs, if the turn may have some."""
        config = self.turn.services.conversation.config
        thread = self.turn.services.state.hooks
        if not (thread.callbacks or hook_presence.may_have_hooks(config, self.turn.settings.cwd)):
            thread.start_source = None
            yield
            return
        async with hook_steps.hooked(self.turn, self.tool_turn) as self.hooks:
            yield

    @property
    def guards_input(self) -> bool:
        if self.hooks is not None:
            return self.hooks.guards_input
        # An interrupt may come before the hooks are read.
        return may_have_hooks(self.turn) and hook_steps.would_guard_input(self.turn)

    async def compact_with_hooks(self, compact: Callable[[], Awaitable[None]]) -> None:
        """Compact the history, between the hooks about it."""
        if self.hooks is None:
            await compact()
        else:
            await self.hooks.allow_compaction(hook_steps.AUTO)
            await compact()
            await self.hooks.compacted(hook_steps.AUTO)


def may_have_hooks(turn: TurnContext) -> bool:
    """Return whether a turn may have hooks. Reads the disk, unless clients have callbacks."""
    if turn.services.state.hooks.callbacks:
        return True
    return hook_presence.may_have_hooks(turn.services.conversation.config, turn.settings.cwd)


async def compact_by_hand(
    turn: TurnContext, tools: Callable[[], ToolContext], compact: Callable[[], Awaitable[None]]
) -> None:
    """Compact the history because the user wants it, unless a hook forbids it."""
    if not may_have_hooks(turn):
        await compact()
        return
    async with hook_steps.hooked(turn, tools()) as hooks:
        if await hooks.allow_compaction(hook_steps.MANUAL):
            await compact()
            await hooks.compacted(hook_steps.MANUAL)
