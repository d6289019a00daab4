"""Detects changes of files before each command: reads those whose status has changed, and keeps copies of small ones.

The copies are in a file without a name, which ends with the server; contents that a command has changed are handed out
with the change. In a repository, a snapshot has the contents at the begin, and only what changes later is copied. A
scan that would exceed its bounds covers nothing, and says so.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from app_server.engine.checkpoints.file_listing import FileListing, Status
from app_server.engine.checkpoints.history import SYMLINK, FileVersion, Manifest, State
from app_server.engine.checkpoints.kept_files import digest_of
from app_server.engine.config.file_rules import MayRead
from app_server.engine.support.private_folders import temporary_folder
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.workspace.git.worktree_files import UNKNOWN, Blobs, look_at

MAX_COPIED_FILE: Final = 1024 * 1024
"""Maximum size of a file that is copied before a command may change it, in bytes."""
MAX_COPIED: Final = 64 * 1024 * 1024
"""Maximum size of all copies, in bytes."""
TIME_LIMIT: Final = 3.0
"""Maximum time of the copies of one scan, in seconds: a command waits for it. The rest is not copied."""
NOT_COPIED: Final = "unknown"
"""Digest of a file that was not copied."""


class Observed(Struct, frozen=True):
    """A file whose state has changed since the last look."""

    path: str
    before: State
    after: State
    ctime_ns: int = 0
    """Time of the last change of its status, by the clock of the file system; 0 if the file is gone."""
    private: bool = False
    """Whether only the owner could read it before."""


class FolderScan:
    """The files below some folders. Its methods block, and are called one at a time."""

    def __init__(
        self,
        home: Path,
        roots: Sequence[str],
        may_read: MayRead,
        *,
        states: Manifest | None = None,
        since_ns: int = 0,
        skips: Set[str] = frozenset(),
        most: int,
        stamp: Callable[[], int],
    ) -> None:
        """`states`: what the files were at the time `since_ns`, if that is known. `skips`, `most`, `stamp`: see
        FileListing.
        """
        self._listing = FileListing(
            roots, avoided=os.path.realpath(home), skips=skips, most=most, stamp=stamp
        )
        self._home, self._may_read, self._looked = home, may_read, False
        self._states: dict[str, FileVersion] = {} if states is None else dict(states)
        self._since_ns = since_ns
        self._private: set[str] = set()
        self._copies: IO[bytes] | None = None
        self._places: dict[str, tuple[int, int]] = {}
        """Offset and length of each copy, by its digest."""
        self._left = MAX_COPIED

    def changes(self) -> list[Observed]:
        """Return the files that have changed since the last call, or since the time of the given states. The first call
        makes copies of all files otherwise. Raises TooManyFiles and OSError.
        """
        first, self._looked = not self._looked, True
        found = self._listing.look()
        touched, missing = found.touched, found.missing
        if first and self._since_ns:
            missing = [path for path in self._states if path not in touched]
            touched = {path: now for path, now in touched.items() if now[0] >= self._since_ns}
        changed = self._look(touched, first=first and not self._since_ns) if touched else []
        return changed + self._removed(missing) if missing else changed

    def state(self, path: str) -> State:
        """Return the state of a file at the last look."""
        return self._states.get(path)

    def content(self, digest: str) -> bytes | None:
        """Return a copy; None if there is none."""
        place = self._places.get(digest)
        if place is None or self._copies is None:
            return None
        return os.pread(self._copies.fileno(), place[1], place[0])

    def _removed(self, paths: Sequence[str]) -> list[Observed]:
        """Return the files of these that are gone, and not only in a place that is not looked at."""
        found = []
        with RootDir("/", self._home) as disk:
            for path in paths:
                if look_at(disk, os.fsencode(path)) is None:
                    before = self._states.pop(path, None)
                    found.append(Observed(path, before, None, 0, path in self._private))
        return found

    def _look(self, touched: Mapping[str, Status], *, first: bool) -> list[Observed]:
        """Read the files that were touched, and remember their states."""
        found: list[Observed] = []
        until = time.monotonic() + TIME_LIMIT
        with RootDir("/", self._home) as disk:
            blobs = Blobs(disk, sha256=False, until=until + TIME_LIMIT)
            for path in sorted(touched):
                ctime_ns, size, _ = touched[path]
                copies = size <= MAX_COPIED_FILE and time.monotonic() < until
                file = look_at(disk, os.fsencode(path))
                if file is None or file.mode == UNKNOWN:
                    continue
                try:
                    state = self._state(disk, blobs, path, file.mode, copies=copies, first=first)
                except OSError:
                    self._listing.report_again(path)
                    continue
                before = self._states.get(path)
                self._states[path] = state
                if not first and before != state:
                    found.append(Observed(path, before, state, ctime_ns, path in self._private))
                (self._private.discard if file.bits & 0o077 else self._private.add)(path)
        return found

    def _state(
        self, disk: RootDir, blobs: Blobs, path: str, mode: int, *, copies: bool, first: bool
    ) -> FileVersion:
        name = os.fsencode(path)
        if copies and self._may_read(path):
            content = disk.read_link(name) if mode == SYMLINK else disk.read(name, MAX_COPIED_FILE)
            return FileVersion(self._copy(content), mode)
        now = None if first else blobs.id_of(name)
        return FileVersion(NOT_COPIED, mode) if now is None else FileVersion(now[1], now[0])

    def _copy(self, content: bytes) -> str:
        digest = digest_of(content)
        if digest not in self._places and len(content) <= self._left:
            if self._copies is None:
                # It is open as long as this object is used, and has no name.
                self._copies = tempfile.TemporaryFile(  # noqa: SIM115
                    buffering=0, dir=temporary_folder(self._home)
                )
            self._places[digest] = MAX_COPIED - self._left, len(content)
            os.pwrite(self._copies.fileno(), content, MAX_COPIED - self._left)
            self._left -= len(content)
        return digest
