"""Writes and removes the files of a restore, each in one step, beneath folders that are opened without following links.
All functions block.

1. Nothing is written unless all targets can be written: rights, room on the disk.
2. A file is replaced only if it is as the plan has seen it. What is written is prepared beside it first, so that the
   last look and the replacement follow each other at once.
3. Files are put back before new ones are removed. Files whose place a new file or folder had taken come last.

Neither hooks nor filters run, and the index and HEAD of a repository stay as they are.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from app_server.engine.checkpoints.history import SYMLINK, FileVersion, State
from app_server.engine.checkpoints.plan import Action, PlannedFile
from app_server.engine.support.engine_errors import ConversationError
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.workspace.git.worktree_files import UNKNOWN, Blobs, look_at

LOOKING_LIMIT: Final = 60.0
"""Timeout of reading the files that turns have changed, in seconds."""
UNREADABLE: Final = FileVersion("unreadable", UNKNOWN)
"""State of a file that cannot be read: no other state equals it."""


class RestoreRefused(ConversationError):
    """Nothing was restored; the text says why."""

    kind = "checkpoint"


class Done(Struct, frozen=True):
    """Result of a restore."""

    changed: frozenset[str]
    failed: Mapping[str, str]
    """Files that could not be changed, with the reasons."""


def present_states(home: Path, paths: Iterable[str], like: Callable[[str], bool]) -> dict[str, State]:
    """Return the present state of each path. `like` returns whether the states of a path have SHA-256 ids."""
    found: dict[str, State] = {}
    with RootDir("/", home) as disk:
        until = time.monotonic() + LOOKING_LIMIT
        blobs = {sha256: Blobs(disk, sha256=sha256, until=until) for sha256 in (False, True)}
        for path in sorted(paths):
            found[path] = _present(blobs[like(path)], path)
    return found


def _present(blobs: Blobs, path: str) -> State:
    try:
        now = blobs.id_of(os.fsencode(path))
    except TimeoutError:
        raise RestoreRefused("the files could not be read in time; nothing was restored") from None
    except OSError:
        return UNREADABLE
    return None if now is None else FileVersion(now[1], now[0])


def check_targets(files: Iterable[PlannedFile], sizes: Mapping[str, int]) -> None:
    """Raise RestoreRefused unless all files can be written: with the rights of this process, and the room there is."""
    needed: dict[int, int] = {}
    free: dict[int, int] = {}
    with RootDir("/") as disk:
        for file in files:
            folder = os.path.dirname(file.path)
            while (status := _folder_status(disk, folder)) is None:
                folder = os.path.dirname(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise RestoreRefused(f"{folder} cannot be written; nothing was restored")
            if file.target is not None:
                room = os.statvfs(folder)
                free[status.st_dev] = room.f_bavail * room.f_frsize
                needed[status.st_dev] = needed.get(status.st_dev, 0) + sizes.get(file.target.digest, 0)
    for device, size in needed.items():
        if size > free[device]:
            raise RestoreRefused(f"the disk has no room for {size:,} bytes; nothing was restored")


def _folder_status(disk: RootDir, folder: str) -> os.stat_result | None:
    """Return the status of a folder; None if there is none."""
    if folder == "/":
        return os.stat("/")
    try:
        status = disk.stat(os.fsencode(folder))
    except OSError:
        return None
    return status if stat.S_ISDIR(status.st_mode) else None


class FileWriter:
    """The files of one restore."""

    def __init__(self, home: Path, usual_bits: int, roots: Sequence[str], asides: Sequence[Path]) -> None:
        """`usual_bits`: the permission bits of a new file of the user. `roots`: folders below which empty folders are
        removed. `asides`: folders in which a killed server may leave what it was writing; those of another file system
        than the file are passed.
        """
        self._home, self._usual = home, usual_bits & 0o777
        self._roots, self._asides = [os.fsencode(root) for root in roots], asides
        self._changed: set[str] = set()
        self._failed: dict[str, str] = {}

    def carry_out(self, files: Sequence[PlannedFile], contents: Mapping[str, bytes]) -> Done:
        """Change the files. What fails is in the result."""
        written = [each for each in files if each.target is not None]
        with RootDir("/", self._home) as disk:
            blocked = self._each(disk, written, contents, waits=True)
            self._each(disk, [each for each in files if each.target is None], contents)
            self._each(disk, blocked, contents)
        return Done(frozenset(self._changed), self._failed)

    def _each(
        self,
        disk: RootDir,
        files: Iterable[PlannedFile],
        contents: Mapping[str, bytes],
        *,
        waits: bool = False,
    ) -> list[PlannedFile]:
        """Change these files. Return those whose place is taken, if they may wait."""
        blocked = []
        for file in files:
            try:
                if file.target is None:
                    self._remove(disk, file)
                else:
                    self._write(disk, file, file.target, contents)
                self._changed.add(file.path)
            except (IsADirectoryError, NotADirectoryError) as error:
                if waits:
                    blocked.append(file)
                else:
                    self._failed[file.path] = error.strerror or "it is in the way of a folder"
            except _ChangedMeanwhile:
                self._failed[file.path] = "it was changed meanwhile"
            except OSError as error:
                self._failed[file.path] = error.strerror or type(error).__name__
        return blocked

    def _write(
        self, disk: RootDir, file: PlannedFile, target: FileVersion, contents: Mapping[str, bytes]
    ) -> None:
        if target.digest not in contents:
            raise OSError(0, "its content cannot be read any more")
        content, name = contents[target.digest], os.fsencode(file.path)
        if target.mode == SYMLINK:
            with self._unchanged(disk, file):
                disk.replace_with_link(name, content)
            return
        bits = self._bits(disk, file, target)
        for aside in self._asides:
            try:
                with RootDir(aside) as outside:
                    self._replace(disk, file, bits, content, outside)
                return
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
        self._replace(disk, file, bits, content, None)

    def _replace(
        self, disk: RootDir, file: PlannedFile, bits: int, content: bytes, aside: RootDir | None
    ) -> None:
        with disk.staged(os.fsencode(file.path), bits, aside) as staged:
            staged.write(content)
            staged.flush()
            self._check(disk, file)

    def _bits(self, disk: RootDir, file: PlannedFile, target: FileVersion) -> int:
        """Return the permission bits: those of the present file, but private if it was private, and executable as it
        was.
        """
        present = look_at(disk, os.fsencode(file.path))
        bits = (self._usual if present is None or present.mode == SYMLINK else present.bits) & 0o777
        bits = bits | (bits & 0o444) >> 2 if target.mode & 0o100 else bits & ~0o111
        return bits & 0o700 if file.private else bits

    def _remove(self, disk: RootDir, file: PlannedFile) -> None:
        name = os.fsencode(file.path)
        with self._unchanged(disk, file):
            disk.remove(name)
        folder = os.path.dirname(name)
        while any(folder.startswith(root.rstrip(b"/") + b"/") for root in self._roots):
            try:
                disk.remove_folder(folder)
            except OSError:
                break
            folder = os.path.dirname(folder)

    @contextmanager
    def _unchanged(self, disk: RootDir, file: PlannedFile) -> Iterator[None]:
        self._check(disk, file)
        yield

    def _check(self, disk: RootDir, file: PlannedFile) -> None:
        """Raise _ChangedMeanwhile unless the file is as the plan has seen it."""
        sha256 = file.present is not None and len(file.present.digest) == 64
        blobs = Blobs(disk, sha256=sha256, until=time.monotonic() + LOOKING_LIMIT)
        name = os.fsencode(file.path)
        now = blobs.id_of(name)
        if (None if now is None else FileVersion(now[1], now[0])) != file.present:
            raise _ChangedMeanwhile
        if now is None and file.action is Action.RECREATE and _is_folder(disk, name):
            raise IsADirectoryError


class _ChangedMeanwhile(Exception):
    """A file is not as the plan has seen it."""


def _is_folder(disk: RootDir, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(disk.stat(name).st_mode)
    except OSError:
        return False
