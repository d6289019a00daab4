"""The snapshots of one turn, by which it can be undone: of the working tree ahead of its first call, and at its end.

A turn that calls no tool takes none, nor does one that may write nothing: under a read-only policy only what the user
allows one by one changes files. Tools wait for the first snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from app_server.core.git.ghost import NOT_A_REPOSITORY, SnapshotUnavailable, TakenSnapshot
from app_server.core.git.repository import find_repository
from app_server.core.session.services import Turn
from app_server.core.threads import run_in_thread
from app_server.core.turn.outbox import Emits, Transcript
from protocol.events.notices import BackgroundEventEvent, WarningEvent
from protocol.policy import ReadOnly
from protocol.responses import CustomToolCall, FunctionCall, GhostSnapshot, LocalShellCall, ResponseItem

FEATURE = "ghost_commit"


class TurnSnapshot:
    """One turn's."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.policy = turn.settings.sandbox_policy
        self._taking = anyio.Lock(fast_acquire=True)
        self._asked = not turn.services.conversation.config.features.enabled(FEATURE)
        self._looked = False
        """Whether this turn has looked for a repository."""
        self._taken: TakenSnapshot | None = None
        self._recorded = False

    async def begin(self) -> None:
        """Tell the client at once where no turn can be undone, because there is no repository. A conversation looks
        once ahead of the model's answer; its later turns do not wait for that: they look before their first call.
        """
        looked, shown_once = f"repository of {self._folder()}", self._turn.services.commands.shown_once
        if looked not in shown_once:
            shown_once.add(looked)
            await self._look()

    async def before_call(self) -> None:
        """Take the snapshot, once, before a tool may change files."""
        if self._asked or isinstance(self.policy, ReadOnly):
            return
        async with self._taking:
            if not self._looked:
                await self._look()
            if not self._asked:
                await self._take()
                self._asked = True

    def record_taken(self) -> None:
        """Put the snapshot into the history, once, if there is one."""
        if self._taken is not None and not self._recorded:
            self._recorded = True
            self._turn.record(GhostSnapshot(ghost_commit=self._taken.commit))

    async def finish(self) -> None:
        """Take the second snapshot, and put the first into the history again, with what the turn left."""
        self.record_taken()
        if self._taken is not None:
            done = await self._turn.services.snapshots.finish(self._taken, self._turn.services.sources.now())
            if done is not None:
                self._turn.record(GhostSnapshot(ghost_commit=done))

    def ahead_of_calls(self) -> Transcript:
        """Return a transcript that has the snapshot before any call: also where a reply broke off and its calls are
        kept for the next attempt.
        """
        return _SnapshotFirst(self._turn.services.state.transcript, self)

    async def _look(self) -> None:
        self._looked = True
        if not self._asked and await run_in_thread(find_repository, self._folder()) is None:
            self._asked = True
            self._tell(SnapshotUnavailable(NOT_A_REPOSITORY))

    async def _take(self) -> None:
        outcome = await self._turn.services.snapshots.take(self._folder(), self._turn.services.sources.now())
        if isinstance(outcome, SnapshotUnavailable):
            self._tell(outcome)
        else:
            self._taken = outcome

    def _folder(self) -> Path:
        return Path(self._turn.services.commands.roots.real(self._turn.settings.cwd))

    def _tell(self, outcome: SnapshotUnavailable) -> None:
        # One word on it is enough for a conversation.
        message, shown_once = outcome.message, self._turn.services.commands.shown_once
        if message not in shown_once:
            shown_once.add(message)
            event = WarningEvent if outcome.is_warning else BackgroundEventEvent
            self._turn.emitter.emit(event(message=message))


class _SnapshotFirst(Transcript):
    def __init__(self, transcript: Transcript, snapshot: TurnSnapshot) -> None:
        super().__init__(transcript.history, transcript.outbox)
        self._snapshot = snapshot

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        if any(isinstance(item, FunctionCall | CustomToolCall | LocalShellCall) for item in items):
            self._snapshot.record_taken()
        super().record(emitter, items)
