"""Undo: takes back what the last turn changed in the working tree, and uses up its snapshot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core.errors import GitError
from app_server.core.git.repository import find_repository
from app_server.core.lazy import Lazy
from app_server.core.session.model_calls import shape_of
from app_server.core.session.services import Services
from app_server.core.session.tasks import ActiveTask, SessionTask
from app_server.core.threads import run_in_thread
from app_server.core.turn.emitter import OperationEmitter
from protocol.engine.events import TurnKind
from protocol.events.notices import UndoCompletedEvent, UndoStartedEvent
from protocol.responses import GhostCommit, GhostSnapshot

if TYPE_CHECKING:
    from app_server.core.git.restore import Undone
    from app_server.core.git.run_git import Git

_UNDO_TURN: Lazy[Callable[[Git, Path, GhostCommit], Awaitable[Undone]]] = Lazy(
    lambda: import_module("app_server.core.git.restore").undo_turn
)

SHORT_ID = 7
"""Digits of a commit's id that a person is shown."""
MOST_NAMED = 20
"""Files that are named in one message."""

STARTED = UndoStartedEvent(message="Undo in progress...")


class UndoTask(SessionTask):
    """An undo that the user asked for."""

    kind = TurnKind.UNDO

    async def run(self, active: ActiveTask) -> str | None:
        emitter = self.turn.emitter
        emitter.turn_started(self.kind, shape_of(self.turn).context_window)
        emitter.emit(STARTED)
        emitter.emit(await self._undo())
        return None

    def interrupted(self) -> None:
        self.turn.emitter.emit(UndoCompletedEvent(success=False, message="Undo cancelled."))

    async def _undo(self) -> UndoCompletedEvent:
        services = self.turn.services
        folder = Path(services.commands.roots.real(self.turn.settings.cwd))
        if (busy := await self._busy(folder)) is not None:
            return UndoCompletedEvent(success=False, message=busy)
        while (commit := self._newest()) is not None:
            try:
                undone = await _UNDO_TURN.get()(services.snapshots.git, folder, commit)
            except GitError as error:
                message = f"Failed to restore snapshot {commit.id[:SHORT_ID]}: {error}"
                return UndoCompletedEvent(success=False, message=message)
            if undone.restored or not undone.kept:
                self._use_up(commit)
            if undone.restored or undone.kept:
                return _completed(commit, undone)
        return UndoCompletedEvent(success=False, message="No ghost snapshot available to undo.")

    async def _busy(self, folder: Path) -> str | None:
        """Return why nothing may be undone now. The user asked, so snapshots are tried again where one was slow."""
        repository = await run_in_thread(find_repository, folder)
        root = folder if repository is None else repository.root
        if self.turn.services.snapshots.try_again(root):
            return "Nothing was undone: the last turns had no snapshot. The next turn takes one again."
        if self.turn.services.commands.runner.runs_in(str(root)):
            return f"Nothing was undone: a command runs in {root}. Undo again when it has ended."
        return None

    def _newest(self) -> GhostCommit | None:
        items = reversed(self.turn.services.state.history.items)
        return next((item.ghost_commit for item in items if isinstance(item, GhostSnapshot)), None)

    def _use_up(self, commit: GhostCommit) -> None:
        """Forget the snapshot, as it was at the turn's begin and at its end."""
        history = self.turn.services.state.history
        used = [
            each
            for each in history.items
            if isinstance(each, GhostSnapshot) and each.ghost_commit.id == commit.id
        ]
        history.replace([item for item in history.items if item not in used])


def refuse_undo(services: Services, operation_id: str) -> None:
    """Tell the client that nothing is undone while something else runs in the conversation."""
    emitter = OperationEmitter(services.outbox, operation_id)
    emitter.emit(STARTED)
    message = "Nothing was undone: a turn runs. Undo again when it has ended."
    emitter.emit(UndoCompletedEvent(success=False, message=message))


def _completed(commit: GhostCommit, undone: Undone) -> UndoCompletedEvent:
    short = commit.id[:SHORT_ID]
    said = [f"Undo restored snapshot {short}." if undone.restored else "Nothing was undone."]
    if undone.kept:
        said.append(f"Kept as they are, because they were changed since: {_named(undone.kept)}.")
    if commit.turn is not None and undone.restored:
        if commit.turn.nested_repositories:
            said.append(f"Nested repositories are left alone: {_named(commit.turn.nested_repositories)}.")
        if commit.turn.after is not None:
            said.append(f"What was taken back is in commit {commit.turn.after[:SHORT_ID]}.")
    return UndoCompletedEvent(success=bool(undone.restored), message=" ".join(said))


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
