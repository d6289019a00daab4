"""The checkpoints of one turn: what its commands and patches change is recorded, from the first of them on.

A turn that runs no command and applies no patch records nothing, and loads nothing. For clients of the conversation API
a turn takes ghost commits too, as codex 0.58 does: before its first call, and at its end. Tools wait for the first one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server.engine.checkpoints import turn_recorder
from app_server.engine.context.history import message_text
from app_server.engine.session.session_services import TurnContext
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools.tool_base import ChangeLog
from app_server.engine.turn.outbox import Emits, Transcript
from app_server.engine.turn.turn_items import TurnInput
from app_server.engine.workspace.git import ghost
from app_server.engine.workspace.git.repository import find_repository
from app_server_protocol.engine.notices import ProgressNotice, WarningNotice
from app_server_protocol.policy import ReadOnly, WorkspaceWrite
from app_server_protocol.responses import (
    CustomToolCall,
    FunctionCall,
    GhostSnapshot,
    LocalShellCall,
    ResponseItem,
)

if TYPE_CHECKING:
    from app_server.engine.workspace.patch.planner import PatchPlan

FEATURE = "ghost_commit"
LAST_SNAPSHOT = 2.0
"""Longest time for the snapshot at the end of an interrupted turn, in seconds: the user waits for that end."""
MOST_WORDS = 200
"""Maximum length of the beginning of the user's message that is stored with a checkpoint, in characters."""


class TurnCheckpoint(ChangeLog):
    """The record of one turn, and its ghost commits."""

    def __init__(self, turn: TurnContext, opening: TurnInput, *, ghost_commits: bool) -> None:
        self._turn, self._opening = turn, opening
        self.policy = turn.settings.sandbox_policy
        self._is_on = FEATURE in turn.services.conversation.config.features.names
        self._taking = anyio.Lock(fast_acquire=True)
        self._asked = not (self._is_on and ghost_commits)
        self._looked = False
        """Whether this turn has looked for a repository."""
        self._taken: ghost.TakenSnapshot | None = None
        self._recorded = False
        self._recorder: turn_recorder.TurnRecorder | None = None

    # --- what changes files
    @asynccontextmanager
    async def command(self, *, lasts: bool = False) -> AsyncIterator[None]:
        if (recorder := await self._recording()) is None:
            yield
            return
        async with recorder.command(lasts=lasts):
            self._warn(recorder)
            yield
        self._warn(recorder)

    @asynccontextmanager
    async def patch(self, plan: PatchPlan) -> AsyncIterator[None]:
        if (recorder := await self._recording()) is None:
            yield
            return
        async with recorder.patch(plan):
            yield
        self._warn(recorder)

    async def _recording(self) -> turn_recorder.TurnRecorder | None:
        """Return the recorder, made with the first change; None if checkpoints are off."""
        if not self._is_on:
            return None
        async with self._taking:
            if self._recorder is None:
                checkpoints = self._turn.services.checkpoints.get()
                recorder = checkpoints.recorder(self._turn.services.conversation.id, self._facts())
                if self._taken is not None:
                    recorder.use_snapshot(self._taken)
                await checkpoints.begin(recorder)
                self._recorder = recorder
            return self._recorder

    def _facts(self) -> turn_recorder.TurnFacts:
        turn, services = self._turn, self._turn.services
        roots = self.policy.writable_roots if isinstance(self.policy, WorkspaceWrite) else ()
        real, terminals = services.commands.roots.real, services.commands.terminals
        return turn_recorder.TurnFacts(
            id=turn.emitter.turn_id,
            words=" ".join(message_text(self._opening.message).split())[:MOST_WORDS],
            at=services.sources.wall_clock(),
            cwd=real(turn.settings.cwd),
            roots=tuple(dict.fromkeys(real(str(root)) for root in roots)),
            may_read=services.commands.may_read(self.policy, turn.settings.cwd),
            now=services.sources.now,
            terminals=lambda: len(terminals),
        )

    # --- ghost commits
    async def begin(self) -> None:
        """Tell the client of the conversation API at once if there are no ghost commits, because there is no
        repository. A conversation looks for the repository once before the model's answer. Its later turns do not wait
        for that: they look before their first call.
        """
        cwd, shown_once = self._turn.settings.cwd, self._turn.services.commands.shown_once
        looked = f"repository of {cwd}"
        if not self._asked and looked not in shown_once:
            shown_once.add(looked)
            await self._look()

    async def before_call(self) -> None:
        """Take the first ghost commit, once, before a tool may change files."""
        if self._asked or isinstance(self.policy, ReadOnly):
            return
        async with self._taking:
            if not self._looked:
                await self._look()
            if not self._asked:
                await self._take()
                self._asked = True

    def record_taken(self) -> None:
        """Add the ghost commit to the history, once, if there is one."""
        if self._taken is not None and self._taken.commit is not None and not self._recorded:
            self._recorded = True
            self._turn.record(GhostSnapshot(ghost_commit=self._taken.commit))

    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[None]:
        """Record what the turn changes in the block, however that ends, also by an error of the server's own: a restore
        waits for the record's end. Take the second ghost commit then, and add the first one to the history again, with
        the state at the turn's end.
        """
        end = anyio.CancelScope()
        try:
            yield
        except anyio.get_cancelled_exc_class():
            end = anyio.move_on_after(LAST_SNAPSHOT, shield=True)
            raise
        finally:
            services, done = self._turn.services, None
            with end:
                if self._taken is not None:
                    self.record_taken()
                    snapshots = services.checkpoints.get().snapshots
                    done = await snapshots.finish(self._taken, services.sources.now())
                    if done is not None and done.commit is not None:
                        self._turn.record(GhostSnapshot(ghost_commit=done.commit))
                if self._recorder is not None:
                    try:
                        await self._recorder.finish(done)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await services.checkpoints.get().end(self._recorder)
                    self._warn(self._recorder)

    def ahead_of_calls(self) -> Transcript:
        """Return a transcript that records the ghost commit before any call, even if a reply broke off and its calls
        are kept for the next attempt. If the turn takes none, it is the conversation's own.
        """
        transcript = self._turn.services.state.transcript
        return transcript if self._asked else _SnapshotFirst(transcript, self)

    async def _look(self) -> None:
        self._looked = True
        if not self._asked and await run_in_thread(find_repository, self._folder()) is None:
            self._asked = True
            self._tell(ghost.NOT_A_REPOSITORY)

    async def _take(self) -> None:
        services, settings = self._turn.services, self._turn.settings
        may_read = services.commands.may_read(self.policy, settings.cwd)
        snapshots = services.checkpoints.get().snapshots
        outcome = await snapshots.take(self._folder(), services.sources.now(), may_read)
        if isinstance(outcome, ghost.SnapshotUnavailable):
            self._tell(outcome.message, warns=outcome.is_warning)
        else:
            self._taken = outcome

    def _folder(self) -> Path:
        return Path(self._turn.services.commands.roots.real(self._turn.settings.cwd))

    def _warn(self, recorder: turn_recorder.TurnRecorder) -> None:
        while recorder.warnings:
            self._tell(recorder.warnings.pop(0), warns=True)

    def _tell(self, message: str, *, warns: bool = False) -> None:
        # One notice is enough for a conversation.
        shown_once = self._turn.services.commands.shown_once
        if message not in shown_once:
            shown_once.add(message)
            event = WarningNotice if warns else ProgressNotice
            self._turn.emitter.emit(event(message=message))


class _SnapshotFirst(Transcript):
    def __init__(self, transcript: Transcript, snapshot: TurnCheckpoint) -> None:
        super().__init__(transcript.history, transcript.outbox)
        self._snapshot = snapshot

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        if any(isinstance(item, FunctionCall | CustomToolCall | LocalShellCall) for item in items):
            self._snapshot.record_taken()
        super().record(emitter, items)
