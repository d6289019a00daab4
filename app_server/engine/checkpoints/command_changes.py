"""Finds what the commands of a turn change, by looks at the files: before each command, and at the end of the turn.

A repository is looked at by a snapshot at both ends of the turn, and by a scan of the status in between, unless it is
large: then what the user did to a file that a later command has changed, too, is a part of what is uncertain. Other
folders are looked at by scans alone. What changes outside of a command's span is the user's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from app_server.engine.checkpoints.file_listing import TooManyFiles, is_inside
from app_server.engine.checkpoints.folder_scan import FolderScan, Observed
from app_server.engine.checkpoints.history import Actor, FileVersion, State, Transition
from app_server.engine.checkpoints.snapshot_states import differences, manifest_of
from app_server.engine.checkpoints.spans_of_time import CommandSpans
from app_server.engine.config.file_rules import MayRead
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.ghost import Snapshots, SnapshotUnavailable, TakenSnapshot
from app_server.engine.workspace.git.repository import find_repository

MAX_WATCHED: Final = 5_000
"""Maximum number of files in a repository that are looked at before each command, beside both ends of the turn."""
MAX_SCANNED: Final = 20_000
"""Maximum number of files outside of repositories that are looked at."""
NO_END: Final = "the snapshot at the end of a turn failed, so what its commands changed is not covered"

Scans = dict[tuple[str, ...], FolderScan]
"""Scans of a thread outside of repositories, by the folders."""


class LookedAt(Struct, frozen=True, kw_only=True):
    """The files that are looked at."""

    home: Path
    cwd: str
    """Working directory, without links."""
    roots: tuple[str, ...]
    """Folders in which commands may write, beside the working directory."""
    objects: Path
    """Folder for contents that a repository lacks."""
    may_read: MayRead
    now: Callable[[], datetime]
    stamp: Callable[[], int]
    """Function that returns the present time of the clock that dates changes. It may raise OSError."""

    @property
    def folders(self) -> tuple[str, ...]:
        return self.cwd, *self.roots


class CommandChanges:
    """The changes by the commands of one turn. Not for several tasks at once."""

    def __init__(self, files: LookedAt, snapshots: Snapshots, scans: Scans, spans: CommandSpans) -> None:
        self._files, self._snapshots, self._scans, self.spans = files, snapshots, scans, spans
        self.taken: TakenSnapshot | None = None
        """Snapshot at the begin; None without a repository, or before the first look."""
        self.problems: list[str] = []
        """Reasons why changes are not covered."""
        self.scan: FolderScan | None = None
        self._looked = self._watched = False
        self._at_begin: dict[str, FileVersion] = {}
        self._private: set[str] = set()
        """Files that only the owner could read at the begin, as far as the snapshot tells."""
        self._seen: dict[str, State] = {}
        """States at the last look, or as a patch has left them, where they differ from the begin."""
        self._waiting: list[Transition] = []
        """Changes that wait for the snapshot at the turn's end, which knows what git ignores."""

    def use_snapshot(self, taken: TakenSnapshot) -> None:
        """Use a snapshot that was taken before the first call."""
        self.taken, self._looked = taken, True
        self._at_begin = manifest_of(taken)
        root = str(taken.repository.root).rstrip("/") + "/"
        self._private = {root + os.fsdecode(name) for name in taken.worktree.private}

    def patched(self, path: str, state: State) -> None:
        """Note what a patch has left."""
        self._seen[path] = state

    async def look(self) -> list[Transition]:
        """Look at the files before a command. Return the changes by earlier commands. Raises OSError if the folder for
        contents cannot be written.
        """
        if not self._looked:
            self._looked = True
            await self._look_first()
            return []
        if self.taken is not None and not self._watched:
            return await self._watch(self.taken)
        return await self._look_again()

    async def finish(self, taken: TakenSnapshot | None) -> list[Transition]:
        """Look at the files at the turn's end, and return the changes. `taken`: a second snapshot that was taken
        already.
        """
        if self.taken is None:
            return await self._look_again()
        taken = taken or await self._snapshots.finish(self.taken, self._files.now())
        if taken is None:
            self.problems.append(NO_END)
            return []
        return await run_in_thread(self._at_end, self.taken, taken)

    def before_patch(self, path: str, now: State) -> list[Transition]:
        """Return the changes of a file by commands since the begin. `now`: what it is, ahead of a patch. Blocks."""
        found = [each for each in self._waiting if each.path == path]
        self._waiting = [each for each in self._waiting if each.path != path]
        if self.taken is None and self.scan is not None:
            before = self.scan.state(path)
        elif self.taken is not None and is_inside(path, str(self.taken.repository.root)):
            before = self._at_begin.get(path)
        else:
            return found
        with RootDir("/") as disk:
            try:
                ctime_ns = disk.stat(os.fsencode(path)).st_ctime_ns
            except OSError:
                ctime_ns = 0
            observed = Observed(path, before, now, ctime_ns)
            return found + self._by_commands([observed], disk)

    # --- the first look
    async def _look_first(self) -> None:
        files = self._files
        if await run_in_thread(find_repository, Path(files.cwd)) is None:
            await self._scan_first()
            return
        taken = await self._snapshots.take(
            Path(files.cwd), files.now(), files.may_read, objects=files.objects
        )
        if isinstance(taken, SnapshotUnavailable):
            self.problems.append(taken.message)
            return
        self._seen.clear()  # the snapshot is newer than any patch
        await run_in_thread(self.use_snapshot, taken)
        await self._watch(taken)

    async def _scan_first(self) -> None:
        files = self._files
        scan = self._scans.get(files.folders) or FolderScan(
            files.home, files.folders, files.may_read, most=MAX_SCANNED, stamp=files.stamp
        )
        try:
            await run_in_thread(scan.changes)
        except (TooManyFiles, OSError) as error:
            self._lose_scan(error)
            return
        self._seen.clear()
        self.scan = self._scans[files.folders] = scan

    async def _watch(self, taken: TakenSnapshot) -> list[Transition]:
        """Begin to look at the status of each file of a snapshot, unless these are too many. Return what commands have
        changed since it.
        """
        self._watched, files = True, self._files
        root = str(taken.repository.root).rstrip("/") + "/"
        prefix = root + os.fsdecode(taken.prefix)
        states = {path: state for path, state in self._at_begin.items() if path.startswith(prefix)}
        if len(states) > MAX_WATCHED or any(len(each.digest) != 40 for each in states.values()):
            return []
        names = (root + os.fsdecode(name.rstrip(b"/")) for name in taken.missing)
        scan = FolderScan(
            files.home,
            [files.cwd],
            files.may_read,
            states=states,
            since_ns=taken.worktree.at_ns,
            skips={name for name in names if name not in states},
            most=2 * MAX_WATCHED,
            stamp=files.stamp,
        )
        self.scan = scan
        return await self._look_again()

    def _lose_scan(self, error: TooManyFiles | OSError) -> None:
        self.scan = None
        self._scans.pop(self._files.folders, None)
        if self.taken is None:
            about = (
                str(error) if isinstance(error, TooManyFiles) else f"files cannot be listed: {error.strerror}"
            )
            self.problems.append(about)

    # --- later looks
    async def _look_again(self) -> list[Transition]:
        if self.scan is None:
            return []
        try:
            changes = await run_in_thread(self._scanned, self.scan)
        except (TooManyFiles, OSError) as error:
            self._lose_scan(error)
            return []
        if self.taken is None:
            return changes
        self._waiting += changes
        return []

    def _scanned(self, scan: FolderScan) -> list[Transition]:
        found = scan.changes()
        if not found:
            return []
        with RootDir("/") as disk:
            changes = self._by_commands(found, disk)
        self._seen.update((each.path, each.after) for each in found)
        return changes

    def _at_end(self, begin: TakenSnapshot, end: TakenSnapshot) -> list[Transition]:
        found = differences(self._files.home, begin, end, self._seen)
        covered = {*self._at_begin, *manifest_of(end)}
        waiting, self._waiting = [each for each in self._waiting if each.path in covered], []
        with RootDir("/") as disk:
            return waiting + self._by_commands([each for each in found if each.path in covered], disk)

    def _by_commands(self, found: Iterable[Observed], disk: RootDir) -> list[Transition]:
        """Return the changes that were made within the span of a command."""
        changes = []
        for each in found:
            before = self._seen.pop(each.path, each.before)
            if before != each.after and self.spans.cover(each, disk):
                private = each.private or each.path in self._private
                changes.append(Transition(each.path, Actor.UNCERTAIN, before, each.after, private))
        return changes


def unknown_contents(scan: FolderScan, changes: Iterable[Transition]) -> list[bytes]:
    """Return the contents of which only a scan has copies."""
    states = (state for each in changes for state in (each.before, each.after) if state is not None)
    copies = (scan.content(digest) for digest in dict.fromkeys(each.digest for each in states))
    return [copy for copy in copies if copy is not None]
