"""Names in writable roots that must not come into being: empty directories hold them meanwhile.

A name that is not there cannot be mounted over. The launcher therefore makes it an empty directory, which
every command sees read-only, and removes it when the last command that needs it has ended. Such a directory is
known by its time stamp, and locked while somebody needs it: so servers in one workspace do not take it away from
one another, and what a launcher left behind that was killed is removed by the next.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

MARK_NS = 318_398_706 * 1_000_000_000
"""A moment in 1980: every file system can store it, and nobody's directory was changed then."""

SHORTAGES = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMLINK}
)

TRIES = 5
"""Another server may remove the directory between any two steps."""


@dataclass(slots=True)
class _Held:
    folder: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Acquired:
    """Names that exist now, so that they can be fenced."""

    held: tuple[bytes, ...]
    """To be released."""
    found: tuple[bytes, ...]
    """Somebody else's."""


@dataclass(slots=True)
class PlaceholderDirs:
    holders: dict[bytes, _Held] = field(default_factory=dict)

    def acquire(self, names: Iterable[bytes]) -> Acquired:
        """Holds these names, but for those that somebody else has taken meanwhile. OSError where one cannot be held for
        a lack of something: a command that finds more of it could take the name.
        """
        taken: list[bytes] = []
        found: list[bytes] = []
        try:
            self._acquire(names, taken, found)
        except OSError:
            self.release(taken)
            raise
        return Acquired(tuple(taken), tuple(found))

    def _acquire(self, names: Iterable[bytes], taken: list[bytes], found: list[bytes]) -> None:
        for name in names:
            holder = self.holders.get(name)
            if holder is not None:
                holder.count += 1
                taken.append(name)
            elif (folder := _hold(name)) is not None:
                self.holders[name] = _Held(folder)
                taken.append(name)
            elif os.path.lexists(name):
                found.append(name)

    def release(self, names: Iterable[bytes]) -> None:
        for name in names:
            held = self.holders.get(name)
            if held is not None:
                held.count -= 1
                if held.count == 0:
                    self._remove(name)

    def release_all(self) -> None:
        for name in list(self.holders):
            self._remove(name)

    def _remove(self, name: bytes) -> None:
        folder = self.holders.pop(name).folder
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            needed = False
        except OSError as error:  # some network file systems have no locks
            needed = isinstance(error, BlockingIOError)
        if not needed and _same(name, folder):
            with contextlib.suppress(OSError):  # it is no longer empty: somebody else's now
                os.rmdir(name)
        # Children that were forked meanwhile have the lock, too, until it is given up for all.
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)
        os.close(folder)


def _hold(name: bytes) -> int | None:
    """A locked directory of ours at that name, which is made where nothing is; None where something else is, or where
    the server may make nothing, and so neither may its commands. OSError for a lack of something.
    """
    for _ in range(TRIES):
        try:
            folder = _open_or_make(name)
        except FileNotFoundError:  # just removed; or there is no place for it, which is asked again
            if not os.path.isdir(os.path.dirname(name)):
                return None
            continue
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return None
        if folder is None:
            return None
        try:
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody is about to remove it
            os.close(folder)
            continue
        except OSError:  # some network file systems have no locks
            pass
        if _same(name, folder):
            return folder
        os.close(folder)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _open_or_make(name: bytes) -> int | None:
    """A descriptor of the directory at that name; None where it is somebody else's."""
    made = True
    try:
        os.mkdir(name, 0o755)
    except FileExistsError:
        made = False
    if made:
        with contextlib.suppress(OSError):
            os.utime(name, ns=(MARK_NS, MARK_NS))
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(name)
        raise
    if not made and os.fstat(folder).st_mtime_ns != MARK_NS:
        os.close(folder)
        return None
    return folder


def _same(name: bytes, folder: int) -> bool:
    """Whether the name still is that directory's."""
    try:
        return os.path.samestat(os.lstat(name), os.fstat(folder))
    except OSError:
        return False
