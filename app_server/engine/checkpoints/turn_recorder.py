"""Records what changes files in one turn: patches exactly, commands by looking at the files before and after.

1. Contents before and after a patch are stored before it is written; the change is stored behind it.
2. Each command has a span of time. What is found to have changed within a span is uncertain.
3. What has changed outside of patches and spans is the user's: nothing is stored of it.

A turn without commands and patches costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct

from app_server.engine.checkpoints.command_changes import (
    CommandChanges,
    LookedAt,
    Scans,
    unknown_contents,
)
from app_server.engine.checkpoints.history import Actor, FileVersion, State, Transition
from app_server.engine.checkpoints.kept_files import (
    ChangesRecord,
    CheckpointFolder,
    Record,
    TurnBeginRecord,
    TurnEndRecord,
    digest_of,
    written,
)
from app_server.engine.checkpoints.spans_of_time import CommandSpans
from app_server.engine.config.file_rules import MayRead
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.ghost import Snapshots, TakenSnapshot
from app_server.engine.workspace.git.repository import Repository, config_of, find_repository, read_head
from app_server.engine.workspace.git.worktree_files import look_at
from app_server.engine.workspace.patch.planner import PatchPlan
from app_server_protocol.values import replace

MAX_CHANGES: Final = 20_000
"""Maximum number of changes that are recorded for one turn."""
TOO_MANY_CHANGES: Final = (
    f"commands changed more than {MAX_CHANGES:,} files; the rest is not covered by checkpoints"
)
LASTING: Final = "commands that run between calls"
"""Mark of the span of such commands."""


class TurnFacts(Struct, frozen=True, kw_only=True):
    """The turn that is recorded."""

    id: str
    words: str
    at: float
    cwd: str
    """Working directory, without links."""
    roots: tuple[str, ...]
    """Folders in which commands may write, beside the working directory."""
    may_read: MayRead
    now: Callable[[], datetime]
    terminals: Callable[[], int]
    """Function that returns the number of commands which run between calls."""


class TurnRecorder:
    """The record of one turn."""

    def __init__(
        self,
        turn: TurnFacts,
        folder: CheckpointFolder,
        snapshots: Snapshots,
        scans: Scans,
        users: Mapping[str, int],
    ) -> None:
        """`scans`: the scans of the thread, which its turns share. `users`: see CommandSpans."""
        self.turn, self.folder = turn, folder
        self.warnings: list[str] = []
        """Reasons why some changes are not covered, which the user has not been told."""
        self._uncovered: list[str] = []
        files = LookedAt(
            home=folder.home,
            cwd=turn.cwd,
            roots=turn.roots,
            objects=folder.objects,
            may_read=turn.may_read,
            now=turn.now,
            stamp=folder.stamp,
        )
        self._spans = CommandSpans(folder.stamp, users)
        self._commands = CommandChanges(files, snapshots, scans, self._spans)
        self._recording = anyio.Lock(fast_acquire=True)
        self._repository: Repository | None = None
        self._sha256 = self._found = self._began = False
        self._head: str | None = None
        """Commit that was checked out at the begin."""
        self._count = 0

    def use_snapshot(self, taken: TakenSnapshot) -> None:
        """Use a snapshot that was taken before the first call."""
        self._commands.use_snapshot(taken)

    @asynccontextmanager
    async def command(self, *, lasts: bool = False) -> AsyncIterator[None]:
        """Record the changes of a command, which the block runs. `lasts`: it may run on afterwards."""
        mark = object()
        async with self._recording:
            try:
                if not self._found:
                    await run_in_thread(self._find)
                if self.turn.terminals() and not self._spans:
                    await run_in_thread(self._spans.open, LASTING)
                if changes := await self._commands.look():
                    await run_in_thread(self._record, changes)
                self._tell_problems()
                await run_in_thread(self._spans.open, mark)
            except OSError as error:
                self._tell(f"checkpoints cannot be written, so changes are not covered: {error.strerror}")
        try:
            yield
        finally:
            if lasts and self.turn.terminals():
                self._spans.move(mark, LASTING)
            else:
                with anyio.CancelScope(shield=True):
                    await run_in_thread(self._spans.close, mark)

    @asynccontextmanager
    async def patch(self, plan: PatchPlan) -> AsyncIterator[None]:
        """Record a patch, which the block writes."""
        async with self._recording:
            try:
                await run_in_thread(self._before_patch, plan)
            except OSError as error:
                self._tell(f"a patch is not covered by checkpoints: {error.strerror}")
                yield
                return
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await run_in_thread(self._after_patch, plan)

    async def finish(self, taken: TakenSnapshot | None = None) -> None:
        """Record the rest at the turn's end. `taken`: a second snapshot that was taken already."""
        async with self._recording:
            try:
                if self._spans:
                    if not self.turn.terminals():
                        await run_in_thread(self._spans.close, LASTING)
                    changes = await self._commands.finish(taken)
                    self._tell_problems()
                    await run_in_thread(self._record, changes)
                if self._spans or self._began:
                    await run_in_thread(self._write_end)
            except OSError as error:
                self._tell(f"checkpoints cannot be written, so changes are not covered: {error.strerror}")

    # --- patches
    def _before_patch(self, plan: PatchPlan) -> None:
        self._find()
        contents = [each for edit in plan.edits for each in (edit.old, edit.new) if each is not None]
        self.folder.put(contents, sha256=self._sha256)
        self.folder.bound()
        found = (
            self._commands.before_patch(edit.place.real, self._state(edit.old, edit.mode))
            for edit in plan.edits
        )
        self._record([each for changes in found for each in changes])

    def _after_patch(self, plan: PatchPlan) -> None:
        changes: list[Transition] = []
        with RootDir("/", self.folder.home) as disk:
            for edit in plan.edits:
                old, new = self._state(edit.old, edit.mode), self._state(edit.new, edit.mode)
                private = edit.mode is not None and not edit.mode & 0o077
                left = None if edit.to is not None else new
                changes += self._made(disk, edit.place.real, old, left, private=private)
                if edit.to is not None:
                    moved = self._made(disk, edit.to.real, None, new, private=private)
                    changes += [replace(each, origin=edit.place.real) for each in moved]
        for each in changes:
            self._commands.patched(each.path, each.after)
        self._record(changes)

    def _made(self, disk: RootDir, path: str, old: State, new: State, *, private: bool) -> list[Transition]:
        """Return the change of a file by a patch; none if the file is not as the patch would have left it."""
        try:
            file = look_at(disk, os.fsencode(path))
            if new is None or file is None:
                done = new is None and file is None
            else:
                content = disk.read(file.path, file.size + 1)
                done = digest_of(content, sha256=self._sha256) == new.digest
                new = FileVersion(new.digest, file.mode)
        except OSError:
            done = False
        return [Transition(path, Actor.AGENT, old, new, private)] if done and old != new else []

    def _state(self, content: bytes | None, bits: int | None) -> State:
        if content is None:
            return None
        mode = 0o100755 if bits is not None and bits & 0o100 else 0o100644
        return FileVersion(digest_of(content, sha256=self._sha256), mode)

    # --- the journal
    def _find(self) -> None:
        """Find the repository of the turn, once, and make the folder. Raises OSError."""
        self.folder.make()
        if not self._found:
            self._found = True
            self._repository = repository = find_repository(Path(self.turn.cwd))
            if repository is not None:
                self._head = read_head(repository).commit
                self._sha256 = config_of(repository).get("extensions.objectformat", "").lower() == "sha256"

    def _record(self, changes: Sequence[Transition]) -> None:
        """Store changes, after the contents of which there are only copies."""
        if self._count + len(changes) > MAX_CHANGES:
            self._tell(TOO_MANY_CHANGES)
            changes = changes[: max(MAX_CHANGES - self._count, 0)]
        if not changes:
            return
        if (scan := self._commands.scan) is not None:
            self.folder.put(unknown_contents(scan, changes))
        self._count += len(changes)
        self.folder.append(*self._begun(), ChangesRecord(self.turn.id, written(changes)))

    def _begun(self) -> list[Record]:
        """Return the record of the turn's begin, once."""
        if self._began:
            return []
        self._began, turn = True, self.turn
        return [TurnBeginRecord(turn.id, turn.at, turn.words, turn.cwd, self._head)]

    def _write_end(self) -> None:
        head = None if self._repository is None else read_head(self._repository).commit
        if not self._began and head == self._head:
            return
        # A turn without changes is stored if it has committed: the commit is none of the user's.
        taken = self._commands.taken
        nested = () if taken is None else taken.worktree.nested
        names = tuple(name.rstrip(b"/").decode("utf-8", "replace") for name in nested)
        self.folder.append(*self._begun(), TurnEndRecord(self.turn.id, head, tuple(self._uncovered), names))

    def _tell_problems(self) -> None:
        while self._commands.problems:
            self._tell(self._commands.problems.pop(0))

    def _tell(self, why: str) -> None:
        if why not in self._uncovered:
            self._uncovered.append(why)
            self.warnings.append(why)
