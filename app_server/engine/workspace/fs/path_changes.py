"""Detects changes of watched paths: with inotify (Linux), or else by comparing snapshots of a path.

One instance of inotify watches any number of directories. The packages for this create an instance and a thread for
each watch, of which a user may have 128.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice

from msgspec import Struct

from app_server.engine.support.engine_errors import FileRefused

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED = 0x4000, 0x8000
ONLY_DIRECTORIES = 0x1000000

NAMES = MOVED_FROM | MOVED_TO | CREATE | DELETE
"""Events in which a name was added or removed."""
ITSELF = DELETE_SELF | MOVE_SELF | IGNORED
"""Events in which the directory was moved or removed, or is no longer watched."""
WATCHED = MODIFY | ATTRIB | CLOSE_WRITE | NAMES | DELETE_SELF | MOVE_SELF | ONLY_DIRECTORIES

READ_SIZE = 1 << 16
_HEAD = struct.Struct("iIII")


class InotifyEvent(Struct, frozen=True):
    descriptor: int
    """Descriptor of the watched directory; -1 for an overflow of the queue."""
    mask: int
    name: str
    """Name in the directory, with bytes that are not text replaced; empty for the directory itself."""


class Inotify:
    """An instance of inotify. `number` is its descriptor, which is readable when there are events. Raises OSError, also
    if the system has no inotify.
    """

    def __init__(self) -> None:
        self.number = _checked(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: str) -> int:
        """Watch a directory; return its descriptor, which is the same for a directory that is watched already."""
        return _checked(_libc().inotify_add_watch(self.number, os.fsencode(directory), WATCHED))

    def remove(self, descriptor: int) -> None:
        """Remove a watch. The kernel may have removed it already, with its directory."""
        _libc().inotify_rm_watch(self.number, descriptor)

    def read(self) -> list[InotifyEvent]:
        try:
            return list(parse_events(os.read(self.number, READ_SIZE)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self.number)


def parse_events(data: bytes) -> Iterator[InotifyEvent]:
    at = 0
    while at + _HEAD.size <= len(data):
        descriptor, mask, _, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield InotifyEvent(descriptor, mask, data[at : at + size].rstrip(b"\0").decode("utf-8", "replace"))
        at += size


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        raise OSError(errno.ENOSYS, f"{os.uname().sysname} has no inotify")
    libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    return libc


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


TRIES = 16
"""Maximum number of attempts to watch a path that changes at the same time."""


class WatchPlace(Struct, frozen=True):
    inside: int | None = None
    """Descriptor of the path itself; None if it is not a directory."""
    above: int | None = None
    """Descriptor of the nearest directory above the path; None for the root directory."""
    component: str = ""
    """Name in that directory that leads to the path."""
    exists: bool = False


NOWHERE = WatchPlace()


def find_place(source: Inotify, path: str, used: set[int]) -> WatchPlace:
    """Watch the path and the nearest directory above it. The path may change at the same time, so it is checked again
    after watching. Every new descriptor is added to `used`. Raises FileRefused and OSError.
    """
    for _ in range(TRIES):
        folder, component = _nearest(path)
        above = source.add(folder) if component else None
        inside = source.add(path) if _is_directory(path) else None
        used |= {each for each in (above, inside) if each is not None}
        if _nearest(path) == (folder, component) and _is_directory(path) == (inside is not None):
            return WatchPlace(inside, above, component, os.path.lexists(path))
    raise FileRefused(f"path `{path}` changes too quickly to be watched")


def _nearest(path: str) -> tuple[str, str]:
    """Return the nearest directory above `path`, and the name in it that leads to the path; an empty name for the root
    directory.
    """
    folder, component = os.path.split(path)
    while component and not _is_directory(folder):
        folder, component = os.path.split(folder)
    return folder, component


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return False


MAX_NAMES = 10_000
"""Maximum number of names of a directory whose entries are compared. A change in a larger directory counts as a change
of the directory itself.
"""

EntryState = tuple[int, ...]


class PathSnapshot(Struct, frozen=True):
    own: EntryState | None = None
    """State of the path itself; None if it does not exist."""
    names: Mapping[str, EntryState] | None = None
    """States of the names in a directory; None if it has more than MAX_NAMES, or is not a directory."""
    modified_ns: int | None = None
    """Modification time of a larger directory, in nanoseconds since 1970; else None."""


def take_snapshot(path: str, before: PathSnapshot | None = None) -> PathSnapshot:
    """Take a snapshot of a path. A path that cannot be read counts as missing. If the process has no descriptor left,
    the result is `before`.
    """
    try:
        own = os.lstat(path)
    except OSError:
        return PathSnapshot()
    try:
        target = os.stat(path)
    except OSError:
        return PathSnapshot(_state(own))
    if not stat.S_ISDIR(target.st_mode):
        return PathSnapshot(_state(own))
    state = (*_state(own), *_state(target))
    try:
        with os.scandir(path) as entries:
            found = list(islice(entries, MAX_NAMES + 1))
    except OSError as error:
        short = error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
        return before if short and before is not None else PathSnapshot(state)
    if len(found) > MAX_NAMES:
        return PathSnapshot(state, modified_ns=target.st_mtime_ns)
    return PathSnapshot(state, {entry.name: named for entry in found if (named := _entry(entry)) is not None})


def changed_paths(path: str, before: PathSnapshot, now: PathSnapshot) -> set[str]:
    """Return the changes that inotify would report: the path, or names in it."""
    changed: set[str] = set()
    if before.own != now.own or before.modified_ns != now.modified_ns:
        changed.add(path)
    if before.names is not None and now.names is not None:
        names = {name for name, _ in before.names.items() ^ now.names.items()}
        changed |= {os.path.join(path, name) for name in names}
    return changed


def _entry(entry: os.DirEntry[str]) -> EntryState | None:
    try:
        return _state(entry.stat(follow_symlinks=False))
    except OSError:
        return None


def _state(status: os.stat_result) -> EntryState:
    """Return values that change with a file. For a directory, return only those that do not change with its content."""
    about = (status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_gid)
    if stat.S_ISDIR(status.st_mode):
        return about
    return (*about, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
