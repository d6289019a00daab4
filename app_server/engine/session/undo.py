"""Undo: a turn takes snapshots of the working tree before its first call and at its end; an undo reverts the changes of
the last turn, which uses up its snapshot.

A turn that calls no tool takes no snapshot. Neither does a turn that may write nothing: under a read-only policy, files
change only by actions that the user approves one by one. Tools wait for the first snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server.engine.session.session_services import SessionServices, TurnContext
from app_server.engine.session.tasks import SessionTask
from app_server.engine.session.turn_context import shape_of
from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.turn.emitter import OperationEmitter
from app_server.engine.turn.outbox import Emits, Transcript
from app_server.engine.workspace.git import restore
from app_server.engine.workspace.git.ghost import NOT_A_REPOSITORY, SnapshotUnavailable, TakenSnapshot
from app_server.engine.workspace.git.repository import find_repository
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.notices import ProgressNotice, UndoCompleted, UndoStarted, WarningNotice
from app_server_protocol.policy import ReadOnly
from app_server_protocol.responses import (
    CustomToolCall,
    FunctionCall,
    GhostCommit,
    GhostSnapshot,
    LocalShellCall,
    ResponseItem,
)

if TYPE_CHECKING:
    from app_server.engine.workspace.git.restore import Undone


SHORT_ID = 7
"""Length of a commit id that is shown to a person, in digits."""
MOST_NAMED = 20
"""Maximum number of files that one message names."""

STARTED = UndoStarted(message="Undo in progress...")


class UndoTask(SessionTask):
    """An undo that the user requested."""

    kind = TurnKind.UNDO

    async def run(self) -> str | None:
        emitter = self.turn.emitter
        emitter.turn_started(self.kind, shape_of(self.turn).context_window)
        emitter.emit(STARTED)
        emitter.emit(await self._undo())
        return None

    def abandon(self) -> None:
        self.turn.emitter.emit(UndoCompleted(success=False, message="Undo cancelled."))

    async def _undo(self) -> UndoCompleted:
        services = self.turn.services
        folder = Path(services.commands.roots.real(self.turn.settings.cwd))
        if (busy := await self._busy(folder)) is not None:
            return UndoCompleted(success=False, message=busy)
        while (commit := self._newest()) is not None:
            try:
                undone = await restore.undo_turn(services.snapshots.git, folder, commit)
            except GitError as error:
                message = f"Failed to restore snapshot {commit.id[:SHORT_ID]}: {error}"
                return UndoCompleted(success=False, message=message)
            if undone.restored or not undone.kept:
                self._use_up(commit)
            if undone.restored or undone.kept:
                return _completed(commit, undone)
        return UndoCompleted(success=False, message="No ghost snapshot available to undo.")

    async def _busy(self, folder: Path) -> str | None:
        """Return the reason why an undo is impossible now; None if it is possible. The user asked for it, so snapshots
        are tried again even if one was slow.
        """
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
        """Remove the snapshot from the history: its entries from the start and from the end of the turn."""
        history = self.turn.services.state.history
        used = [
            each
            for each in history.items
            if isinstance(each, GhostSnapshot) and each.ghost_commit.id == commit.id
        ]
        history.replace([item for item in history.items if item not in used])


def refuse_undo(services: SessionServices, operation_id: str) -> None:
    """Report to the client that there is no undo while the conversation is busy."""
    emitter = OperationEmitter(services.outbox, operation_id)
    emitter.emit(STARTED)
    message = "Nothing was undone: a turn runs. Undo again when it has ended."
    emitter.emit(UndoCompleted(success=False, message=message))


def _completed(commit: GhostCommit, undone: Undone) -> UndoCompleted:
    short = commit.id[:SHORT_ID]
    said = [f"Undo restored snapshot {short}." if undone.restored else "Nothing was undone."]
    if undone.kept:
        said.append(f"Kept as they are, because they were changed since: {_named(undone.kept)}.")
    if commit.turn is not None and undone.restored:
        if commit.turn.nested_repositories:
            said.append(f"Nested repositories are left alone: {_named(commit.turn.nested_repositories)}.")
        if commit.turn.after is not None:
            said.append(f"What was taken back is in commit {commit.turn.after[:SHORT_ID]}.")
    return UndoCompleted(success=bool(undone.restored), message=" ".join(said))


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


FEATURE = "ghost_commit"


class TurnSnapshot:
    """The snapshots of one turn."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self.policy = turn.settings.sandbox_policy
        self._taking = anyio.Lock(fast_acquire=True)
        self._asked = FEATURE not in turn.services.conversation.config.features.names
        self._looked = False
        """Whether this turn has looked for a repository."""
        self._taken: TakenSnapshot | None = None
        self._recorded = False

    async def begin(self) -> None:
        """Warn the client at once if no turn can be undone, because there is no repository. A conversation looks for
        the repository once before the model's answer. Its later turns do not wait for that: they look before their
        first call.
        """
        cwd, shown_once = self._turn.settings.cwd, self._turn.services.commands.shown_once
        looked = f"repository of {cwd}"
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
        """Add the snapshot to the history, once, if there is one."""
        if self._taken is not None and not self._recorded:
            self._recorded = True
            self._turn.record(GhostSnapshot(ghost_commit=self._taken.commit))

    async def finish(self) -> None:
        """Take the second snapshot, and record the first in the history again, with the state at the turn's
        end added.
        """
        if self._taken is not None:
            self.record_taken()
            done = await self._turn.services.snapshots.finish(self._taken, self._turn.services.sources.now())
            if done is not None:
                self._turn.record(GhostSnapshot(ghost_commit=done))

    def ahead_of_calls(self) -> Transcript:
        """Return a transcript that records the snapshot before any call, even if a reply broke off and its calls are
        kept for the next attempt.
        """
        return _SnapshotFirst(self._turn.services.state.transcript, self)

    async def _look(self) -> None:
        self._looked = True
        if not self._asked and await run_in_thread(find_repository, self._folder()) is None:
            self._asked = True
            self._tell(SnapshotUnavailable(NOT_A_REPOSITORY))

    async def _take(self) -> None:
        services, settings = self._turn.services, self._turn.settings
        commands = services.commands
        may_read = commands.may_read(self.policy, settings.cwd)
        outcome = await services.snapshots.take(self._folder(), services.sources.now(), may_read)
        if isinstance(outcome, SnapshotUnavailable):
            self._tell(outcome)
        else:
            self._taken = outcome

    def _folder(self) -> Path:
        return Path(self._turn.services.commands.roots.real(self._turn.settings.cwd))

    def _tell(self, outcome: SnapshotUnavailable) -> None:
        # One notice is enough for a conversation.
        message, shown_once = outcome.message, self._turn.services.commands.shown_once
        if message not in shown_once:
            shown_once.add(message)
            event = WarningNotice if outcome.is_warning else ProgressNotice
            self._turn.emitter.emit(event(message=message))


class _SnapshotFirst(Transcript):
    def __init__(self, transcript: Transcript, snapshot: TurnSnapshot) -> None:
        super().__init__(transcript.history, transcript.outbox)
        self._snapshot = snapshot

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        if any(isinstance(item, FunctionCall | CustomToolCall | LocalShellCall) for item in items):
            self._snapshot.record_taken()
        super().record(emitter, items)
