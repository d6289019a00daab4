"""Names in writable roots that must not come into being: empty directories hold them meanwhile.

A name that is not there cannot be mounted over. The launcher therefore makes it an empty directory, which
every command sees read-only, and removes it when the last command that needs it has ended. Such a directory is
known by its time stamp, and locked while somebody needs it: so servers in one workspace do not take it away from
one another, and what a launcher left behind that was killed is removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

MARK_NS = 318_398_706 * 1_000_000_000
"""A moment in 1980: every file system can store it, and nobody's directory was changed then."""

TRIES = 5
"""Another server may remove the directory between any two steps."""


@dataclass(slots=True)
class _Held:
    folder: int
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
            holder = self.holders.get(name)
            if holder is not None:
                holder.count += 1
                taken.append(name)
            elif (folder := _hold(name)) is not None:
                self.holders[name] = _Held(folder)
                taken.append(name)
            elif os.path.lexists(name):
                found.append(name)
        return Taken(tuple(taken), tuple(found))

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
    the server can make nothing, and so neither can its commands.
    """
    for _ in range(TRIES):
        made = True
        try:
            os.mkdir(name, 0o755)
        except FileExistsError:
            made = False
        except OSError:
            return None
        if made:
            with contextlib.suppress(OSError):
                os.utime(name, ns=(MARK_NS, MARK_NS))
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
        if _same(name, folder):
            return folder
        os.close(folder)
    return None


def _same(name: bytes, folder: int) -> bool:
    """Whether the name still is that directory's."""
    try:
        return os.path.samestat(os.lstat(name), os.fstat(folder))
    except OSError:
        return False
