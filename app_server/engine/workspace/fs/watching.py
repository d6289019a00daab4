"""Notifies a client of changes of watched paths: of a file, or of a directory and the names in it, but not deeper.

A path may be created and removed: the nearest existing directory above it is watched, too. Changes are coalesced for a
moment and sent together. If there are more than a client would handle one by one, they are sent as one change of the
watched path itself.

If inotify is missing, or the user has no inotify watches left, paths are polled, with long enough pauses. Changes that
are undone between two polls are not noticed then.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.support.engine_errors import FileRefused
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.fs import path_changes

log = logging.getLogger(__name__)

MAX_WATCHES = 4096
MAX_ID = 1000
"""Maximum number of characters of a watch id, which every notification contains."""
MAX_CHANGES = 512
"""Maximum number of changed paths of one watch that are sent one by one."""
COLLECT_SECONDS = 0.1
PIECE = 32 * 1024
"""Maximum number of characters of paths in one notification: clients read lines of 64 KiB."""
POLL_SECONDS = 1.0
POLL_REST = 20.0
"""Pause between two polls as a multiple of the time that the last poll took, if that is longer than `POLL_SECONDS`."""
SHORT_OF_INOTIFY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ENOSYS})
"""Errors that are not caused by the path: limits of the user, or a system without inotify."""

NotifyChanged = Callable[[str, Sequence[str]], Awaitable[None]]
"""Callback that notifies the client of the id of a watch, and of the changed paths. It may wait until the client has
read enough (back-pressure).
"""


class Watch(Struct, eq=False):
    """One watched path."""

    id: str
    path: str
    place: path_changes.WatchPlace = path_changes.NOWHERE
    snapshot: path_changes.PathSnapshot | None = None
    """Last state of a path that is polled; None if inotify watches it."""
    begun: bool = False
    changed: set[str] = msgspec.field(default_factory=set)

    @property
    def descriptors(self) -> set[int]:
        return {each for each in (self.place.inside, self.place.above) if each is not None}

    def add(self, path: str) -> None:
        if self.changed == {self.path}:
            return
        self.changed.add(path)
        if len(self.changed) > MAX_CHANGES:
            self.changed = {self.path}


class FileWatcher:
    """The watches of one client. Its tasks run in `tasks` until the client disconnects."""

    def __init__(self, notify: NotifyChanged, tasks: TaskGroup) -> None:
        self._notify, self._tasks = notify, tasks
        self._inotify: path_changes.Inotify | None = None
        self._reports = self._polls = False
        """Whether the tasks that send notifications and that poll are running."""
        self._watches: dict[str, Watch] = {}
        self._users: dict[int, set[Watch]] = {}
        """Watches by inotify descriptor."""
        self._changed = anyio.Event()
        self._placing = anyio.Lock()

    async def watch(self, id: str, path: str) -> str:
        """Watch a path; return it in its normalised form. Nothing is sent before `begin`. Raises FileRefused and
        OSError.
        """
        if id in self._watches:
            raise FileRefused(f"watchId already exists: {id}", "watch_exists")
        if len(id) > MAX_ID:
            raise FileRefused(f"watchId must have at most {MAX_ID} characters")
        if len(self._watches) >= MAX_WATCHES:
            raise FileRefused(f"no more than {MAX_WATCHES} paths can be watched", "too_many_watches")
        if not self._reports:
            self._reports = True
            self._tasks.start_soon(self._report, name="file changes")
        watch = self._watches[id] = Watch(id, "/" + os.path.normpath(path).lstrip("/"))
        try:
            await self._notice(watch)
        except BaseException:
            self.unwatch(id)
            raise
        return watch.path

    def begin(self, id: str) -> None:
        """Send the changes of a watch from now on."""
        watch = self._watches.get(id)
        if watch is not None:
            watch.begun = True
            self._changed.set()

    def unwatch(self, id: str) -> None:
        watch = self._watches.pop(id, None)
        if watch is not None and self._inotify is not None:
            self._release(self._inotify, watch, watch.descriptors)

    # --- watched paths
    async def _notice(self, watch: Watch) -> None:
        try:
            if self._inotify is None:
                self._inotify = path_changes.Inotify()
                self._tasks.start_soon(self._read, self._inotify, name="file watches")
            await self._place(self._inotify, watch)
        except OSError as error:
            if error.errno not in SHORT_OF_INOTIFY:
                raise
            log.info("fs/watch: %s is polled: %s", watch.path, error.strerror)
            await self._poll_from_now(watch)

    async def _place(self, source: path_changes.Inotify, watch: Watch) -> None:
        async with self._placing:
            used = watch.descriptors
            try:
                watch.place = await run_in_thread(path_changes.find_place, source, watch.path, used)
            finally:
                if self._watches.get(watch.id) is not watch:
                    watch.place = path_changes.NOWHERE
                for descriptor in watch.descriptors:
                    self._users.setdefault(descriptor, set()).add(watch)
                self._release(source, watch, used - watch.descriptors)

    def _release(self, source: path_changes.Inotify, watch: Watch, descriptors: set[int]) -> None:
        for descriptor in descriptors:
            users = self._users.get(descriptor, set())
            users.discard(watch)
            if not users:
                self._users.pop(descriptor, None)
                source.remove(descriptor)

    # --- polling
    async def _poll_from_now(self, watch: Watch) -> None:
        watch.snapshot = await run_in_thread(path_changes.take_snapshot, watch.path, abandon_on_cancel=True)
        if not self._polls:
            self._polls = True
            self._tasks.start_soon(self._poll, name="polled files")

    async def _poll(self) -> None:
        rest = POLL_SECONDS
        try:
            while polled := [each for each in self._watches.values() if each.snapshot is not None]:
                await anyio.sleep(rest)
                begun = time.monotonic()
                for watch in polled:
                    before = watch.snapshot
                    now = await run_in_thread(
                        path_changes.take_snapshot, watch.path, before, abandon_on_cancel=True
                    )
                    watch.snapshot = now
                    for path in path_changes.changed_paths(watch.path, before or now, now):
                        watch.add(path)
                        self._changed.set()
                rest = max(POLL_SECONDS, (time.monotonic() - begun) * POLL_REST)
        finally:
            self._polls = False

    # --- events
    async def _read(self, source: path_changes.Inotify) -> None:
        try:
            while True:
                await anyio.wait_readable(source.number)
                moved: set[Watch] = set()
                for event in source.read():
                    moved |= self._take(event)
                for watch in moved:
                    await self._place_again(source, watch)
                self._changed.set()
        finally:
            source.close()

    def _take(self, event: path_changes.InotifyEvent) -> set[Watch]:
        """Record the changes of an event; return the watches whose paths may lead elsewhere now."""
        if event.mask & path_changes.OVERFLOW:
            for watch in self._watches.values():
                watch.changed = {watch.path}
            return set(self._watches.values())
        moved: set[Watch] = set()
        users = self._users.get(event.descriptor, ())
        if event.mask & path_changes.IGNORED:
            self._users.pop(event.descriptor, None)
        for watch in users:
            if event.mask & path_changes.ITSELF:
                moved.add(watch)
            elif event.descriptor == watch.place.inside and event.name:
                watch.add(os.path.join(watch.path, event.name))
            if event.descriptor == watch.place.above and event.name == watch.place.component:
                if watch.place.exists:
                    watch.add(watch.path)
                if event.mask & path_changes.NAMES:
                    moved.add(watch)
        return moved

    async def _place_again(self, source: path_changes.Inotify, watch: Watch) -> None:
        existed = watch.place.exists
        try:
            await self._place(source, watch)
        except (OSError, FileRefused) as error:
            if isinstance(error, OSError) and error.errno in SHORT_OF_INOTIFY:
                await self._poll_from_now(watch)
            else:
                log.warning("fs/watch: %s cannot be watched any more: %s", watch.path, error)
        if existed or watch.place.exists:
            watch.add(watch.path)

    # --- notifications
    async def _report(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            await anyio.sleep(COLLECT_SECONDS)
            for watch in list(self._watches.values()):
                if not watch.begun or not watch.changed:
                    continue
                paths, watch.changed = sorted(watch.changed), set()
                for piece in _pieces(paths):
                    await self._notify(watch.id, piece)
                    if self._watches.get(watch.id) is not watch:
                        break


def _pieces(paths: Sequence[str]) -> list[list[str]]:
    pieces: list[list[str]] = [[]]
    size = 0
    for path in paths:
        size += len(path)
        if size > PIECE and pieces[-1]:
            pieces.append([])
            size = len(path)
        pieces[-1].append(path)
    return pieces
