"""The spans of time in which commands of a turn ran, by the clock of the file system that dates changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from app_server.engine.checkpoints.folder_scan import Observed
from app_server.engine.support.rooted_fs import RootDir

FOREVER = 1 << 62


class CommandSpans:
    """The spans of one turn. The methods that read the clock block."""

    def __init__(self, stamp: Callable[[], int], users: Mapping[str, int]) -> None:
        """`stamp` returns the present time; it may raise OSError. `users`: files that a client has written for the user
        by a method, each with the time of the change.
        """
        self._stamp, self._users = stamp, users
        self._closed: list[tuple[int, int]] = []
        self._open: dict[object, int] = {}
        """Begin of each span whose end is not known yet."""

    def __bool__(self) -> bool:
        return bool(self._closed or self._open)

    def open(self, mark: object) -> None:
        """Begin a span. Raises OSError; the span then counts from the beginning."""
        self._open.setdefault(mark, 0)
        self._open[mark] = self._stamp()

    def close(self, mark: object) -> None:
        """End a span, if it is open."""
        begin = self._open.pop(mark, None)
        if begin is not None:
            try:
                self._closed.append((begin, self._stamp()))
            except OSError:
                self._closed.append((begin, FOREVER))

    def move(self, mark: object, to: object) -> None:
        """Let the span of another mark include an open one, which goes on."""
        self._open[to] = min(self._open.pop(mark), self._open.get(to, FOREVER))

    def cover(self, change: Observed, disk: RootDir) -> bool:
        """Return whether a command ran when a file was changed. A removal leaves no time but that of the last change in
        its folder: it counts if that is not before the first command. To recreate a file loses nothing of the user's.
        """
        if change.after is not None:
            return self._users.get(change.path) != change.ctime_ns and self._include(change.ctime_ns)
        folder = os.path.dirname(change.path)
        while folder != "/":
            try:
                changed_ns = disk.stat(os.fsencode(folder)).st_ctime_ns
                return any(begin <= changed_ns for begin in self._begins())
            except OSError:
                folder = os.path.dirname(folder)
        return False

    def _begins(self) -> list[int]:
        return [*(begin for begin, _ in self._closed), *self._open.values()]

    def _include(self, ctime_ns: int) -> bool:
        return any(begin <= ctime_ns <= end for begin, end in self._closed) or any(
            begin <= ctime_ns for begin in self._open.values()
        )
