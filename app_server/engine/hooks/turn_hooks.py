"""The hooks of one turn, as the turn and its tools see them; and the empty ones of most turns.

The real ones are in `active_hooks`, which is loaded with the first turn that has a hook.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec import Struct

from app_server_protocol.encoding import Json

if TYPE_CHECKING:
    from app_server.engine.hooks.announced_hooks import ClientCallback
    from app_server.engine.hooks.decision import HookContext, HookDecision
    from app_server.engine.hooks.hook_definitions import HookHandler, LoadedHooks
    from app_server.engine.hooks.hook_files import HookFiles
    from app_server.engine.hooks.run_hooks import HookCommands
    from app_server_protocol.engine.hook_events import HookEvent
    from app_server_protocol.responses import MessageItem


class TurnHooks(Protocol):
    """Runs the hooks of a turn. Callers ask `has` first, and build no input for an event without hooks."""

    @property
    def stop(self) -> str | None:
        """Why a hook ended the turn, as text for the user; None if the turn goes on."""
        ...

    def has(self, event: HookEvent) -> bool:
        """Return whether any hook may run at this event."""
        ...

    async def run(
        self,
        event: HookEvent,
        own: Mapping[str, Json],
        *names: str,
        call_id: str | None = None,
        without: HookHandler | None = None,
    ) -> HookDecision:
        """Run the hooks of an event at the same time, and return their decision. `own`: the input of this event alone.
        `names`: what matchers are held against; without names all hooks of the event run. `call_id`: the call that is
        judged; None for other events. `without`: a handler that does not run; None if all do.
        """
        ...

    def context_messages(self, contexts: Sequence[HookContext]) -> tuple[MessageItem, ...]:
        """Return what hooks add to the context as messages for the model. Writes files in the home for long ones."""
        ...


class NoTurnHooks:
    """The hooks of a turn that has none."""

    stop: Final = None

    def has(self, event: HookEvent) -> bool:
        return False

    async def run(
        self,
        event: HookEvent,
        own: Mapping[str, Json],
        *names: str,
        call_id: str | None = None,
        without: HookHandler | None = None,
    ) -> HookDecision:
        raise AssertionError("there are no hooks")

    def context_messages(self, contexts: Sequence[HookContext]) -> tuple[MessageItem, ...]:
        return ()


NO_TURN_HOOKS: Final = NoTurnHooks()


class ThreadHooks(Struct):
    """The hooks of a thread between its turns."""

    start_source: str | None = "startup"
    """Source of the begin of the thread in this process, until hooks have been told of it; None from then on."""
    files: HookFiles | None = None
    """Files with the hooks; None until a turn may have some."""
    callbacks: dict[object, ClientCallback] = msgspec.field(default_factory=dict)
    """Callbacks of the clients that have announced some, by the client. One that has left is removed at the next turn.
    """
    last: tuple[LoadedHooks, HookCommands] | None = None
    """Hooks of the last turn that had some, and what runs them; None before it."""
