"""A snapshot of the working tree at the start of a turn, so that the turn can be undone.

It is taken while the model thinks; tools wait for it. It is recorded ahead of the first calls, or at the turn's end
however the turn ends: one that changed nothing still can be undone to where it began.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import anyio

from app_server.core.git.ghost import SnapshotUnavailable, take_snapshot
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.turn.settings import Turn
from app_server.core.turn.transcript import Emits, StoredTranscript, Transcript
from protocol.events.notices import BackgroundEventEvent
from protocol.responses import (
    CustomToolCall,
    FunctionCall,
    GhostCommit,
    GhostSnapshot,
    LocalShellCall,
    ResponseItem,
)

log = logging.getLogger(__name__)

FEATURE = "ghost_commit"


class TurnSnapshot:
    """One turn's."""

    def __init__(self, services: Services, state: SessionState, turn: Turn, transcript: Transcript) -> None:
        self._services, self._state, self._turn, self._transcript = services, state, turn, transcript
        self._commit: GhostCommit | None = None
        self.taken = anyio.Event()
        """Set once tools may change files."""

    async def take(self) -> None:
        try:
            if self._services.conversation.config.features.enabled(FEATURE):
                await self._take()
        finally:
            self.taken.set()

    async def record(self) -> None:
        """Put the snapshot into the history, once, when it is there."""
        if not self.taken.is_set():
            await self.taken.wait()
        self.record_taken()

    def record_taken(self) -> None:
        """The same at once, where it is there already. Before that no tool has run."""
        if self._commit is not None:
            self._transcript.record(self._turn.emitter, [GhostSnapshot(ghost_commit=self._commit)])
            self._commit = None

    def ahead_of_calls(self, transcript: StoredTranscript) -> Transcript:
        """A transcript that has the snapshot before any call: also where a reply broke off and its calls are kept for
        the next attempt."""
        return _SnapshotFirst(transcript, self)

    async def _take(self) -> None:
        outcome = await take_snapshot(
            self._services.git, Path(self._turn.settings.cwd), self._services.sources.now()
        )
        if isinstance(outcome, SnapshotUnavailable):
            self._emit_message(outcome.message)
        else:
            self._commit = outcome

    def _emit_message(self, message: str) -> None:
        # One word on it is enough for a conversation.
        if message not in self._state.shown_once:
            self._state.shown_once.add(message)
            self._turn.emitter.emit(BackgroundEventEvent(message=message))


class _SnapshotFirst(StoredTranscript):
    def __init__(self, transcript: StoredTranscript, snapshot: TurnSnapshot) -> None:
        super().__init__(transcript.history, transcript.outbox)
        self._snapshot = snapshot

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        if any(isinstance(item, FunctionCall | CustomToolCall | LocalShellCall) for item in items):
            self._snapshot.record_taken()
        super().record(emitter, items)
