"""Undo: the working tree back to where it was before the newest snapshot, and the snapshot used up."""

from __future__ import annotations

from pathlib import Path

from app_server.core.errors import GitError
from app_server.core.git.restore import restore_snapshot
from app_server.core.session.model_calls import shape_of
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask
from app_server.core.turn.settings import Turn
from protocol.engine.events import TurnKind
from protocol.events.notices import UndoCompletedEvent, UndoStartedEvent
from protocol.responses import GhostSnapshot

SHORT_ID = 7
"""Digits of a commit's id that a person is shown."""


class UndoTask:
    kind = TurnKind.UNDO

    def __init__(self, services: Services, state: SessionState, turn: Turn) -> None:
        self._services, self._state, self._turn = services, state, turn

    async def run(self, active: ActiveTask) -> str | None:
        emitter = self._turn.emitter
        emitter.turn_started(TurnKind.UNDO, shape_of(self._services, self._turn).context_window)
        emitter.emit(UndoStartedEvent(message="Undo in progress..."))
        emitter.emit(await self._undo())
        return None

    def interrupted(self) -> None:
        self._turn.emitter.emit(UndoCompletedEvent(success=False, message="Undo cancelled."))

    async def _undo(self) -> UndoCompletedEvent:
        items = list(self._state.history.items)
        place = next((n for n in reversed(range(len(items))) if isinstance(items[n], GhostSnapshot)), None)
        if place is None:
            return UndoCompletedEvent(success=False, message="No ghost snapshot available to undo.")
        snapshot = items[place]
        assert isinstance(snapshot, GhostSnapshot)
        commit = snapshot.ghost_commit
        try:
            await restore_snapshot(self._services.git, Path(self._turn.settings.cwd), commit)
        except GitError as error:
            message = f"Failed to restore snapshot {commit.id[:SHORT_ID]}: {error}"
            return UndoCompletedEvent(success=False, message=message)
        del items[place]
        self._state.history.replace(items)
        return UndoCompletedEvent(success=True, message=f"Undo restored snapshot {commit.id[:SHORT_ID]}.")
