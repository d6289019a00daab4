"""Lists the files below some folders with their status, and tells which of them may have changed since the last look.

Each look reads the names in every folder and the status of every name: nothing is taken from the times of a folder,
which some file systems do not keep. Only a folder in which a name or a status differs costs more than these calls.

A file that was changed so shortly before a look that a later change may leave the same time is reported again at the
next look.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct

from app_server.engine.support.rooted_fs import RootDir

MAX_NOTICED_FILE: Final = 64 * 1024 * 1024
"""Maximum size of a file whose changes are noticed, in bytes."""
CLOCK_STEP_NS: Final = 20_000_000
"""Upper limit of the step of the clock that dates changes, in nanoseconds; a kernel's tick takes up to 10 ms."""
COARSE_STEP_NS: Final = 2_000_000_000
"""The same on a file system that stores whole seconds."""
TOO_MANY: Final = (
    "there are more than {:,} files in the working directory and no repository, so checkpoints do not cover what "
    "commands change"
)

Status = tuple[int, int, int]
"""Time of the last change of the status, size, and inode: no program can set back the first."""


class TooManyFiles(Exception):
    """The folders have more files than are looked at."""


class Differences(Struct, frozen=True):
    """Files that may have changed since the last look, each with its status, and files that were not found."""

    touched: dict[str, Status]
    missing: list[str]


class _ListedFolder(Struct, frozen=True):
    """The names in one folder at the last look."""

    status: dict[str, Status]
    """Status of each name."""
    others: set[str]
    """Names of folders, and of files that are not looked at."""
    recent: set[str]
    """Names of files that are reported at the next look in any case."""
    inner: list[str]
    """Names of folders that are looked at."""

    @property
    def files(self) -> Set[str]:
        return self.status.keys() - self.others


_NOTHING: Final = _ListedFolder({}, set(), set(), [])


class FileListing:
    """The files below some folders, but for nested repositories. Its methods block, and are called one at a time."""

    def __init__(
        self, roots: Sequence[str], *, avoided: str, skips: Set[str], most: int, stamp: Callable[[], int]
    ) -> None:
        """`avoided`: a folder that is left out, with its files. `skips`: files and folders that are left out. `most`:
        maximum number of files. `stamp` returns the present time of the clock that dates changes.
        """
        self._roots = [root for root in roots if not any(is_inside(root, other) for other in roots)]
        self._avoided, self._skips, self._most, self._stamp = avoided, skips, most, stamp
        self._folders: dict[str, _ListedFolder] = {}
        """Folders by their paths, with a slash at the end."""

    def look(self) -> Differences:
        """Look at all files. The first look reports each of them. Raises TooManyFiles and OSError."""
        look = _Look(self._folders, self._stamp())
        self._folders = look.folders
        for root in self._roots:
            with suppress(FileNotFoundError, NotADirectoryError), RootDir(root) as disk:
                disk.walk(partial(self._visit, look, root.rstrip("/") + "/"))
        for head, folder in look.known.items():
            look.add_differences(head, folder, _NOTHING)
        return look.found

    def report_again(self, path: str) -> None:
        """Report a file at the next look, even if its status does not change."""
        head, _, name = path.rpartition("/")
        self._folders[f"{head}/"].recent.add(name)

    def _visit(
        self, look: _Look, top: str, descriptor: int, path: str, names: Sequence[str]
    ) -> Sequence[str]:
        """Look at one folder. Return the folders in it that are looked at, too."""
        head = top + path
        before = look.known.pop(head, _NOTHING)
        if not before.recent and _is_unchanged(descriptor, names, before.status):
            folder = before
        elif (path and ".git" in names) or head.rstrip("/") == self._avoided:
            folder = _NOTHING
        else:
            folder = self._listed(descriptor, names, head, look.now_ns)
        if folder is not before:
            look.add_differences(head, before, folder)
        look.folders[head] = folder
        look.count += len(folder.status) - len(folder.others)
        if look.count > self._most:
            raise TooManyFiles(TOO_MANY.format(self._most))
        return folder.inner

    def _listed(self, descriptor: int, names: Sequence[str], head: str, now_ns: int) -> _ListedFolder:
        folder = _ListedFolder({}, set(), set(), [])
        for name in names:
            try:
                at = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                continue  # it is gone
            ctime_ns = at.st_ctime_ns
            folder.status[name] = ctime_ns, at.st_size, at.st_ino
            if name == ".git" or head + name in self._skips:
                folder.others.add(name)
            elif stat.S_ISDIR(at.st_mode):
                folder.others.add(name)
                folder.inner.append(name)
            elif at.st_size > MAX_NOTICED_FILE:
                folder.others.add(name)
            elif ctime_ns + (CLOCK_STEP_NS if ctime_ns % 1_000_000_000 else COARSE_STEP_NS) > now_ns:
                folder.recent.add(name)
        return folder


class _Look:
    """One look at the folders."""

    __slots__ = ("count", "folders", "found", "known", "now_ns")

    def __init__(self, known: dict[str, _ListedFolder], now_ns: int) -> None:
        self.known, self.now_ns = known, now_ns
        self.folders: dict[str, _ListedFolder] = {}
        self.found = Differences({}, [])
        self.count = 0

    def add_differences(self, head: str, before: _ListedFolder, now: _ListedFolder) -> None:
        files = now.files
        for name in files:
            status = now.status[name]
            if before.status.get(name) != status or name in before.recent:
                self.found.touched[head + name] = status
        self.found.missing.extend(head + name for name in before.files - files)


def _is_unchanged(descriptor: int, names: Sequence[str], known: Mapping[str, Status]) -> bool:
    """Return whether a folder has exactly the known names, with the known status."""
    if len(names) != len(known):
        return False
    status_of = os.stat
    try:
        for name in names:
            at = status_of(name, dir_fd=descriptor, follow_symlinks=False)
            ctime_ns, size, inode = known[name]
            if at.st_ctime_ns != ctime_ns or at.st_size != size or at.st_ino != inode:
                return False
    except (KeyError, OSError):
        return False
    return True


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is below a folder."""
    return path.startswith(folder.rstrip("/") + "/")
