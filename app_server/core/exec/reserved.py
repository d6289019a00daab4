"""Names in writable roots that must not come into being: empty directories hold them meanwhile.

A name that is not there cannot be mounted over. The launcher therefore makes it an empty directory, which
every command sees read-only, and removes it when the last command that needs it has ended. Such a directory is
known by its time stamp, and locked while somebody needs it: so servers in one workspace do not take it away from
one another, and what a launcher left behind that was killed is removed by the next. The folder that the name is in is
opened without following links: this process has rights that the command which could have put a link there lacks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

if sys.platform == "linux":
    from app_server.core.sandbox.confine.syscalls import open_place

MARK_NS = 318_398_706 * 1_000_000_000
"""A moment in 1980: every file system can store it, and nobody's directory was changed then."""

TRIES = 5
"""Another server may remove the directory between any two steps."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory of ours that holds a name."""

    parent: int
    """The folder that the name is in, as a place only."""
    folder: int
    """The directory itself, locked."""


@dataclass(slots=True)
class _Held:
    directories: list[_Directory]
    """The last is the one at the name; the others are where the folder was that has been replaced since."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Taken:
    """Names that exist now, so that they can be fenced."""

    held: tuple[bytes, ...]
    """To be given back."""
    found: tuple[bytes, ...]
    """Somebody else's."""


@dataclass(slots=True)
class ReservedNames:
    holders: dict[bytes, _Held] = field(default_factory=dict)

    def take(self, names: Iterable[bytes]) -> Taken:
        """Holds these names, but for those that somebody else has taken meanwhile."""
        taken: list[bytes] = []
        found: list[bytes] = []
        for name in names:
            try:
                parent = open_place(os.path.dirname(name), os.O_DIRECTORY)
            except OSError:
                continue  # the folder has gone, or its path leads over a link now: it is not granted
            if self._hold(name, parent):
                taken.append(name)
            elif _exists(os.path.basename(name), parent):
                found.append(name)
            if not self._keeps(name, parent):
                os.close(parent)
        return Taken(tuple(taken), tuple(found))

    def _hold(self, name: bytes, parent: int) -> bool:
        """Whether a directory of ours is at the name, now held once more."""
        holder = self.holders.get(name)
        if holder is not None and os.path.samestat(os.fstat(holder.directories[-1].parent), os.fstat(parent)):
            holder.count += 1
            return True
        folder = _make(os.path.basename(name), parent)
        if folder is None:
            return False
        if holder is None:
            self.holders[name] = _Held([_Directory(parent, folder)])
        else:
            holder.directories.append(_Directory(parent, folder))
            holder.count += 1
        return True

    def _keeps(self, name: bytes, parent: int) -> bool:
        holder = self.holders.get(name)
        return holder is not None and holder.directories[-1].parent == parent

    def give_back(self, names: Iterable[bytes]) -> None:
        for name in names:
            held = self.holders.get(name)
            if held is not None:
                held.count -= 1
                if held.count == 0:
                    self._let_go(name)

    def give_back_all(self) -> None:
        for name in list(self.holders):
            self._let_go(name)

    def _let_go(self, name: bytes) -> None:
        for directory in self.holders.pop(name).directories:
            _remove(os.path.basename(name), directory)


def _remove(name: bytes, directory: _Directory) -> None:
    parent, folder = directory.parent, directory.folder
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        needed = False
    except OSError as error:  # some network file systems have no locks
        needed = isinstance(error, BlockingIOError)
    if not needed and _same(name, parent, folder):
        with contextlib.suppress(OSError):  # it is no longer empty: somebody else's now
            os.rmdir(name, dir_fd=parent)
    # Children that were forked meanwhile have the lock, too, until it is given up for all.
    with contextlib.suppress(OSError):
        fcntl.flock(folder, fcntl.LOCK_UN)
    os.close(folder)
    os.close(parent)


def _make(name: bytes, parent: int) -> int | None:
    """A locked directory of ours at that name, which is made where nothing is; None where something else is, or where
    the server can make nothing, and so neither can its commands.
    """
    for _ in range(TRIES):
        made = True
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            made = False
        except OSError:
            return None
        if made:
            with contextlib.suppress(OSError):
                os.utime(name, ns=(MARK_NS, MARK_NS), dir_fd=parent, follow_symlinks=False)
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            folder = os.open(name, flags, dir_fd=parent)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        if not made and os.fstat(folder).st_mtime_ns != MARK_NS:
            os.close(folder)
            return None
        try:
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody is about to remove it
            os.close(folder)
            continue
        except OSError:  # some network file systems have no locks
            pass
        if _same(name, parent, folder):
            return folder
        os.close(folder)
    return None


def _same(name: bytes, parent: int, folder: int) -> bool:
    """Whether the name still is that directory's."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(folder))
    except OSError:
        return False


def _exists(name: bytes, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True
