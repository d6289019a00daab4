"""Undo: puts the files back to the time before the last turn that changed some, or takes back the last undo.

It is a restore of `engine.checkpoints` like any other: what only the user wrote stays, and is named. The user has asked
for the whole turn, so changes during its commands, of which nobody knows the author, are taken back, too, and named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.engine.session import rewind
from app_server.engine.session.session_services import SessionServices, TurnContext
from app_server.engine.session.tasks import SessionTask
from app_server.engine.session.turn_context import shape_of
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.emitter import OperationEmitter
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.notices import UndoCompleted, UndoStarted

if TYPE_CHECKING:
    from app_server.engine.checkpoints.carry_out import Restored
    from app_server.engine.checkpoints.history import RecordedChanges, Span

MOST_NAMED = 20
"""Maximum number of files that one message names."""
STARTED = UndoStarted(message="Undo in progress...")
NOTHING = "Nothing to undo: no change of files by the agent is recorded."
NOTHING_BACK = "Nothing to take back: there was no undo, or it was taken back already."


class UndoTask(SessionTask):
    """An undo that the user requested."""

    kind = TurnKind.UNDO

    def __init__(self, turn: TurnContext, *, back: bool = False) -> None:
        """`back`: take back the last undo."""
        super().__init__(turn)
        self._back = back

    async def run(self) -> str | None:
        emitter = self.turn.emitter
        emitter.turn_started(self.kind, shape_of(self.turn).context_window)
        emitter.emit(STARTED)
        emitter.emit(await self._undo())
        return None

    def abandon(self) -> None:
        if self.turn.emitter.has_started:
            self.turn.emitter.emit(UndoCompleted(success=False, message="Undo cancelled."))

    async def _undo(self) -> UndoCompleted:
        services = self.turn.services
        checkpoints, thread = services.checkpoints.get(), services.conversation.id
        recorded = await checkpoints.recorded(thread)
        if (busy := await self._busy()) is not None:
            return UndoCompleted(success=False, message=busy)
        try:
            for span in _candidates(recorded, back=self._back):
                preview = await checkpoints.preview(thread, span.id, uncertain=True)
                if preview.plan.files:
                    restored = await checkpoints.restore(thread, span.id, uncertain=True)
                    return _completed(restored, self._shown)
        except CoreError as error:
            return UndoCompleted(success=False, message=f"Nothing was undone: {error}")
        return UndoCompleted(success=False, message=NOTHING_BACK if self._back else NOTHING)

    async def _busy(self) -> str | None:
        """Return the reason why an undo is impossible now; None if it is possible. The user asked for it, so snapshots
        are tried again even if one was slow.
        """
        services = self.turn.services
        for root in await rewind.Rewinds(services).roots():
            if services.checkpoints.get().snapshots.try_again(Path(root)):
                return "Nothing was undone: the last turns had no snapshot. The next turn takes one again."
            if services.commands.runner.runs_in(root):
                return f"Nothing was undone: a command runs in {root}. Undo again when it has ended."
        return None

    def _shown(self, path: str) -> str:
        """Return a path relative to the working directory, if it is in it."""
        cwd = self.turn.services.commands.roots.real(self.turn.settings.cwd)
        return os.path.relpath(path, cwd) if path.startswith(cwd.rstrip("/") + "/") else path


def _candidates(recorded: RecordedChanges, *, back: bool) -> Sequence[Span]:
    """Return the turns or restores that may be taken back, newest first."""
    if not back:
        return recorded.undoable()
    restore = recorded.newest_restore()
    return () if restore is None else (restore,)


def refuse_undo(services: SessionServices, operation_id: str) -> None:
    """Report to the client that there is no undo while the conversation is busy."""
    emitter = OperationEmitter(services.outbox, operation_id)
    emitter.emit(STARTED)
    message = "Nothing was undone: a turn runs. Undo again when it has ended."
    emitter.emit(UndoCompleted(success=False, message=message))


def _completed(restored: Restored, shown: Callable[[str], str]) -> UndoCompleted:
    changed = [each for each in restored.files if each.writes]
    kept = [
        shown(each.path) for each in restored.files if not each.writes and each.path not in restored.failed
    ]
    count = "1 file" if len(changed) == 1 else f"{len(changed)} files"
    said = [
        f"{count} restored: {_named(shown(each.path) for each in changed)}."
        if changed
        else "Nothing was undone."
    ]
    if unsure := [shown(each.path) for each in changed if each.by == "uncertain"]:
        said.append(f"Changed while a command ran, by it or by you: {_named(unsure)}.")
    if kept:
        said.append(f"Kept as they are, because they were changed since: {_named(kept)}.")
    if restored.failed:
        failed = (f"{shown(path)} ({why})" for path, why in restored.failed.items())
        said.append(f"Not restored: {_named(failed)}.")
    if restored.nested and changed:
        said.append(f"Nested repositories are left alone: {_named(restored.nested)}.")
    return UndoCompleted(success=bool(changed), message=" ".join(said))


def _named(names: Iterable[str]) -> str:
    listed = [name.encode("utf-8", "replace").decode() for name in names]
    more = len(listed) - MOST_NAMED
    return ", ".join(listed[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
