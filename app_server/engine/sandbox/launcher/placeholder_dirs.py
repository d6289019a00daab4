"""Placeholder directories: they keep commands from creating protected names, such as `.git`, in writable roots.

Only an existing path can be mounted read-only. So the launcher creates an empty directory at a missing name, which
commands see read-only. It removes the directory after the last command that needs it, or shortly after that: making
directories anew for each command takes long, on ext4 the longer the more were removed in the last minutes. A fixed time
stamp marks the directory, and a lock protects it while it is needed: servers in one workspace do not remove each
other's directories, and a later launcher removes those of a killed one. The parent folder is opened without following
links, because the launcher has more rights than the command that could have created a link.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys

from app_server.engine.sandbox.launcher.stdlib_min import Iterable, suppress
from app_server.engine.support.light_dataclasses import dataclass, field

if sys.platform == "linux":
    from app_server.engine.sandbox.launcher.syscalls import open_place

SHORTAGES = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMLINK}
)

MARK_NS = 318_398_706 * 1_000_000_000
"""Time stamp of placeholders, a moment in 1980: every file system can store it, and no other directory has it by
chance.
"""

TRIES = 5
"""Maximum number of attempts, because another server may remove the directory between any two steps."""


def is_placeholder(path: str) -> bool:
    """Return whether the path is an empty directory with the mark. A directory with entries is not a placeholder,
    whatever its time stamp: a command can set that.
    """
    try:
        status = os.lstat(path)
        return status.st_mtime_ns == MARK_NS and stat.S_ISDIR(status.st_mode) and not os.listdir(path)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _Directory:
    """A placeholder directory."""

    parent: int
    """O_PATH descriptor of the folder that contains it."""
    folder: int
    """Descriptor of the directory itself, locked."""

    def is_at(self, name: bytes, parent: int) -> bool:
        """Return whether it is still at its name, in the folder of the descriptor `parent`."""
        return os.path.samestat(os.fstat(self.parent), os.fstat(parent)) and _same(name, parent, self.folder)


@dataclass(slots=True)
class _Held:
    directories: list[_Directory]
    """Directories for one name. The last one is at the name now; the others are in a parent folder that has been
    replaced.
    """
    count: int = 1


@dataclass(frozen=True, slots=True)
class Acquired:
    """Protected names that exist now, so that they can be mounted read-only."""

    held: tuple[bytes, ...]
    """Names of placeholders, which the caller has to release."""
    found: tuple[bytes, ...]
    """Paths that exist and are not placeholders of this launcher."""


@dataclass(slots=True)
class PlaceholderDirs:
    holders: dict[bytes, _Held] = field(default_factory=dict)
    unused: set[bytes] = field(default_factory=set)
    """Names of the placeholders that no command needs now."""

    def acquire(self, names: Iterable[bytes]) -> Acquired:
        """Acquire placeholders at these names, except those that exist by now. Raises OSError in a shortage of
        resources: without the placeholder, a command could create the name once the shortage is over.
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
            parent = _open_parent(name)
            if parent is None:
                continue
            try:
                if self._hold(name, parent):
                    taken.append(name)
                elif _exists(os.path.basename(name), parent):
                    found.append(name)
            finally:
                if not self._keeps(name, parent):
                    os.close(parent)

    def _hold(self, name: bytes, parent: int) -> bool:
        """Create or share the placeholder at the name. Return False if none can be created."""
        holder = self.holders.get(name)
        if holder is not None and holder.directories[-1].is_at(os.path.basename(name), parent):
            holder.count += 1
            self.unused.discard(name)
            return True
        folder = _make(os.path.basename(name), parent)
        if folder is None:
            return False
        if holder is None:
            self.holders[name] = _Held([_Directory(parent, folder)])
        else:
            holder.directories.append(_Directory(parent, folder))
            holder.count += 1
            self.unused.discard(name)
        return True

    def _keeps(self, name: bytes, parent: int) -> bool:
        holder = self.holders.get(name)
        return holder is not None and holder.directories[-1].parent == parent

    def release(self, names: Iterable[bytes]) -> None:
        self.keep(names)
        self.remove_unused()

    def keep(self, names: Iterable[bytes]) -> None:
        """Release the names of one command without removing the directories yet: the next command may need them."""
        for name in names:
            held = self.holders.get(name)
            if held is not None:
                held.count -= 1
                if held.count == 0:
                    self.unused.add(name)

    def remove_unused(self) -> None:
        """Remove the placeholders that no command needs."""
        for name in self.unused:
            self._remove(name)
        self.unused.clear()

    def release_all(self) -> None:
        for name in list(self.holders):
            self._remove(name)
        self.unused.clear()

    def _remove(self, name: bytes) -> None:
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
        with suppress(OSError):  # it is no longer empty, so it is in use
            os.rmdir(name, dir_fd=parent)
    # Children that were forked meanwhile share the lock; LOCK_UN releases it for all of them.
    with suppress(OSError):
        fcntl.flock(folder, fcntl.LOCK_UN)
    os.close(folder)
    os.close(parent)


def _open_parent(name: bytes) -> int | None:
    """Open the folder that contains the name. Return None if it is missing or its path contains a link: then it is not
    granted as a root either. Raises OSError in a shortage.
    """
    try:
        return open_place(os.path.dirname(name), os.O_DIRECTORY)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return None


def _make(name: bytes, parent: int) -> int | None:
    """Open or create a locked placeholder at the name. Return None if another file is there, or if the server may not
    create one: then its commands may not either. Raises OSError in a shortage.
    """
    for _ in range(TRIES):
        try:
            folder = _open_or_make(name, parent)
        except FileNotFoundError:  # the directory or its parent folder was just removed
            if os.fstat(parent).st_nlink == 0:
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
        except BlockingIOError:  # another server is about to remove it
            os.close(folder)
            continue
        except OSError:  # some network file systems have no locks
            pass
        if _same(name, parent, folder):
            return folder
        os.close(folder)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _open_or_make(name: bytes, parent: int) -> int | None:
    """Return a descriptor of the directory at the name; None if it is not a placeholder."""
    made = True
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        made = False
    if made:
        with suppress(OSError):
            os.utime(name, ns=(MARK_NS, MARK_NS), dir_fd=parent, follow_symlinks=False)
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(name, flags, dir_fd=parent)
    except OSError:
        if made:
            with suppress(OSError):
                os.rmdir(name, dir_fd=parent)
        raise
    if not made and os.fstat(folder).st_mtime_ns != MARK_NS:
        os.close(folder)
        return None
    return folder


def _same(name: bytes, parent: int, folder: int) -> bool:
    """Return whether the name still refers to that directory."""
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
