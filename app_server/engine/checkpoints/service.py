"""The checkpoints of a server: records of turns, previews and restores, for all of its threads.

It knows which turns have begun to change files, and where: a restore is refused while one does, and a turn that begins
to change files waits for the end of a restore in the same place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import anyio

from app_server.engine.checkpoints.carry_out import Restored, carry_out
from app_server.engine.checkpoints.command_changes import Scans
from app_server.engine.checkpoints.history import RecordedChanges, Span
from app_server.engine.checkpoints.kept_files import CheckpointFolder, bound_home
from app_server.engine.checkpoints.preview import Preview, make_preview
from app_server.engine.checkpoints.restore import RestoreRefused
from app_server.engine.checkpoints.turn_recorder import TurnFacts, TurnRecorder
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.ghost import Snapshots
from app_server.engine.workspace.git.repository import find_repository
from app_server.engine.workspace.git.run_git import Git

MOST_SCANS: Final = 16
"""Maximum number of threads whose files outside of repositories are watched between turns."""
MOST_NOTED: Final = 10_000
"""Maximum number of files written by clients that are remembered."""
STALE: Final = "files changed since the preview"


class CheckpointUnknown(RestoreRefused):
    """Nothing was recorded under an id, or nothing since it."""


class Checkpoints:
    """The checkpoints of all threads of one server."""

    def __init__(self, git: Git, new_id: Callable[[], str], wall_clock: Callable[[], float]) -> None:
        self.git, self.snapshots = git, Snapshots(git)
        self._new_id, self._wall_clock = new_id, wall_clock
        self._scans: dict[str, Scans] = {}
        self._users: dict[str, int] = {}
        self._active: dict[TurnRecorder, str] = {}
        """Recorders of running turns, with the root of each."""
        self._restoring: dict[str, anyio.Event] = {}
        self._bounded = False

    # --- turns
    def recorder(self, thread: str, turn: TurnFacts) -> TurnRecorder:
        scans = self._scans.pop(thread, {})
        self._scans[thread] = scans
        if len(self._scans) > MOST_SCANS:
            del self._scans[next(iter(self._scans))]
        return TurnRecorder(turn, CheckpointFolder(self.git.home, thread), self.snapshots, scans, self._users)

    async def begin(self, recorder: TurnRecorder) -> None:
        """Begin to record, before the first change of a turn; wait for the end of a restore in the same root."""
        root = await run_in_thread(root_of, recorder.turn.cwd)
        while (restoring := self._restoring.get(root)) is not None:
            await restoring.wait()
        self._active[recorder] = root

    async def end(self, recorder: TurnRecorder) -> None:
        """End the record of a turn, and remove the checkpoints of old threads, once."""
        self._active.pop(recorder, None)
        if not self._bounded:
            self._bounded = True
            await run_in_thread(bound_home, self.git.home, recorder.folder.thread)

    def forget(self, thread: str) -> None:
        """Stop to watch the files of a thread that is open no more, which closes the copies of them."""
        self._scans.pop(thread, None)

    def user_wrote(self, path: str) -> None:
        """Note that a client has just written a file for the user, by a method."""
        try:
            real = os.path.realpath(path)
            with RootDir("/") as disk:
                self._users[real] = disk.stat(os.fsencode(real)).st_ctime_ns
        except OSError:
            return
        if len(self._users) > MOST_NOTED:
            del self._users[next(iter(self._users))]

    def working_in(self, root: str, thread: str) -> list[str]:
        """Return the other threads whose turns have begun to change files in a root."""
        return sorted(
            {
                recorder.folder.thread
                for recorder, other in self._active.items()
                if other == root and recorder.folder.thread != thread
            }
        )

    # --- what is recorded
    async def recorded(self, thread: str) -> RecordedChanges:
        return await run_in_thread(CheckpointFolder(self.git.home, thread).read)

    async def preview(self, thread: str, before: str, *, uncertain: bool) -> Preview:
        """Plan a restore to the time before a turn or restore. Raises RestoreRefused."""
        folder = CheckpointFolder(self.git.home, thread)
        recorded = await run_in_thread(folder.read)
        since = recorded.index_of(before)
        if since is None:
            raise CheckpointUnknown(f"no change of files is recorded for {before}")
        return await make_preview(self.git, folder, recorded, since, uncertain=uncertain)

    # --- restores
    async def restore(
        self,
        thread: str,
        before: str,
        *,
        token: str | None = None,
        conflicts: Literal["keep", "merge"] = "keep",
        uncertain: bool = False,
    ) -> Restored:
        """Put the files back to the time before a turn or restore. `token` is that of the preview; None if the user has
        asked for a restore without one. Raises RestoreRefused.
        """
        folder = CheckpointFolder(self.git.home, thread)
        recorded = await run_in_thread(folder.read)
        since = recorded.index_of(before)
        if since is None:
            raise CheckpointUnknown(f"no change of files is recorded for {before}")
        with self._alone(await run_in_thread(_roots_of, recorded.spans), thread):
            preview = await make_preview(self.git, folder, recorded, since, uncertain=uncertain)
            if token is not None and token != preview.plan.token:
                raise RestoreRefused(STALE)
            id, now, merges = self._new_id(), self._wall_clock(), conflicts == "merge"
            with anyio.CancelScope(shield=True):
                restored = await carry_out(self.git, folder, preview, id, now, merges=merges)
        return restored

    @contextmanager
    def _alone(self, roots: Sequence[str], thread: str) -> Iterator[None]:
        """Refuse a restore while something works in one of the roots, and let turns that begin wait for its end."""
        for root in roots:
            if any(recorder.folder.thread == thread for recorder in self._active):
                raise RestoreRefused("nothing was restored: a turn of this thread runs")
            if others := self.working_in(root, thread):
                raise RestoreRefused(f"nothing was restored: thread {others[0]} works in {root}")
            if root in self._restoring:
                raise RestoreRefused(f"nothing was restored: another restore runs in {root}")
        over = anyio.Event()
        self._restoring.update(dict.fromkeys(roots, over))
        try:
            yield
        finally:
            for root in roots:
                del self._restoring[root]
            over.set()


def root_of(cwd: str) -> str:
    """Return the root of the repository that contains a folder, or the folder itself."""
    repository = find_repository(Path(cwd))
    return os.path.realpath(cwd) if repository is None else str(repository.root)


def _roots_of(spans: Sequence[Span]) -> list[str]:
    return list(dict.fromkeys(root_of(span.root) for span in spans if span.root))
