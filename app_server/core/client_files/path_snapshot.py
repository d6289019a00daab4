"""The state of a watched path at one moment, by which a change is seen without inotify: of the path itself and, for a
directory, of the names in it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

MAX_NAMES = 10_000
"""Of one directory; of a larger one a change is that of the directory itself."""

EntryState = tuple[int, ...]


class PathSnapshot(Struct, frozen=True):
    own: EntryState | None = None
    """None: it does not exist."""
    names: Mapping[str, EntryState] | None = None
    """Of a directory with at most MAX_NAMES names."""
    modified_ns: int | None = None
    """Of a larger directory."""


def take_snapshot(path: str, before: PathSnapshot | None = None) -> PathSnapshot:
    """Look at a path. What cannot be looked at counts as not there; where there is no descriptor for looking, all is as
    `before`.
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
    """As inotify would report them: the path, or names in it."""
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
    """Return what changes with a file; of a directory only what its content does not change."""
    about = (status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_gid)
    if stat.S_ISDIR(status.st_mode):
        return about
    return (*about, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
