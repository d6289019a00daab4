"""Ghost snapshots: commits of the working tree without a reference, taken before and after a turn to undo it.

A snapshot does not change the index, HEAD, references or files. Git writes only to a scratch folder. The objects are
copied from there into the repository, below the folder that was opened.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from app_server.engine.config.file_rules import MayRead, reads_all
from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git import snapshot, worktree_files
from app_server.engine.workspace.git.repository import Repository, find_repository, is_own, read_head
from app_server.engine.workspace.git.run_git import TIME_LIMIT, Git, objects_in
from app_server_protocol.responses import GhostCommit, SnapshotOfTurn
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.workspace.git.snapshot import Known, WorktreeSnapshot


NOT_A_REPOSITORY = "Snapshots disabled: current directory is not a Git repository."
LEADS_ELSEWHERE = (
    "Snapshots disabled: git's folder lies outside of the working tree, and nothing there points back to it."
)
TOO_SLOW = (
    f"Snapshots disabled in this repository: one took longer than {TIME_LIMIT:g} seconds. Turns cannot be undone there "
    "until you ask for an undo; then the next turn tries again."
)

MOST_KNOWN = 8
"""Maximum number of repositories whose files are cached between snapshots."""

_AUTHOR = ("Codex Snapshot", "snapshot@codex.local")
_MESSAGE = "codex snapshot"


class SnapshotUnavailable(Struct, frozen=True):
    """No snapshot was created; `message` is the text for the client."""

    message: str

    @property
    def is_warning(self) -> bool:
        """Whether the user should see the message, because other turns in that repository can be undone."""
        return self.message == TOO_SLOW


class TakenSnapshot(Struct, frozen=True):
    """The snapshot from the beginning of a turn."""

    commit: GhostCommit
    turn: SnapshotOfTurn
    repository: Repository
    prefix: bytes
    worktree: WorktreeSnapshot
    may_read: MayRead = reads_all


class Snapshots:
    """Takes snapshots for all conversations of one server."""

    def __init__(self, git: Git) -> None:
        self.git = git
        self._slow: set[Path] = set()
        """Roots of repositories in which a snapshot took too long."""
        self._known: dict[Path, Known] = {}

    def try_again(self, root: Path) -> bool:
        """Allow snapshots again in a repository in which one took too long. Return whether one did."""
        slow = root in self._slow
        self._slow.discard(root)
        return slow

    async def take(
        self, folder: Path, now: datetime, may_read: MayRead = reads_all
    ) -> TakenSnapshot | SnapshotUnavailable:
        """Take a snapshot of the readable files below `folder`. Never raises, except when cancelled."""
        repository = await run_in_thread(find_repository, folder)
        if repository is None:
            return SnapshotUnavailable(NOT_A_REPOSITORY)
        if repository.root in self._slow:
            return SnapshotUnavailable(TOO_SLOW)
        if not await run_in_thread(is_own, repository):
            return SnapshotUnavailable(LEADS_ELSEWHERE)
        try:
            with anyio.fail_after(TIME_LIMIT):
                return await self._take(repository, prefix_of(repository, folder), now, may_read)
        except TimeoutError:
            self._slow.add(repository.root)
            return SnapshotUnavailable(TOO_SLOW)
        except (GitError, OSError) as error:
            reason = str(error) if isinstance(error, GitError) else type(error).__name__
            return SnapshotUnavailable(
                f"Snapshots disabled after ghost snapshot error: {reason.removesuffix('.')}."
            )

    async def finish(self, taken: TakenSnapshot, now: datetime) -> GhostCommit | None:
        """Take a second snapshot at the turn's end. Return the first snapshot with the commit of the second; None if it
        failed.
        """
        try:
            with anyio.fail_after(TIME_LIMIT):
                _, _, id = await self._commit(taken.repository, taken.prefix, now, taken.may_read, taken)
        except TimeoutError:
            self._slow.add(taken.repository.root)
            return None
        except (GitError, OSError):
            return None
        return replace(taken.commit, turn=replace(taken.turn, after=id))

    async def _take(
        self, repository: Repository, prefix: bytes, now: datetime, may_read: MayRead
    ) -> TakenSnapshot:
        parent, worktree, id = await self._commit(repository, prefix, now, may_read)
        names = [*worktree.untracked, *worktree.unread, *worktree.ignored]
        turn = SnapshotOfTurn(
            worktree=displayable(os.fsencode(repository.root)),
            folder=displayable(prefix),
            private_files=tuple(map(displayable, worktree.private)),
            nested_repositories=tuple(displayable(name.rstrip(b"/")) for name in worktree.nested),
        )
        commit = GhostCommit(
            id=id,
            parent=parent,
            preexisting_untracked_files=tuple(displayable(name) for name in names if not name.endswith(b"/")),
            preexisting_untracked_dirs=tuple(displayable(name[:-1]) for name in names if name.endswith(b"/")),
            turn=turn,
        )
        return TakenSnapshot(commit, turn, repository, prefix, worktree, may_read)

    async def _commit(
        self,
        repository: Repository,
        prefix: bytes,
        now: datetime,
        may_read: MayRead,
        earlier: TakenSnapshot | None = None,
    ) -> tuple[str | None, WorktreeSnapshot, str]:
        """Return HEAD, the snapshot of the working tree, and the id of its commit. `earlier` is the snapshot from the
        beginning of the turn.
        """
        git, root = self.git, repository.root
        parent = await head_commit(git, repository)
        with git.scratch_folder() as folder:
            env = objects_in(folder, repository)
            worktree = await snapshot.write_worktree(
                git,
                repository,
                repository.objects_dir,
                env,
                prefix,
                known=self._known.get(root) if earlier is None else earlier.worktree.known,
                earlier=None if earlier is None else earlier.worktree,
                may_read=may_read,
            )
            self._known.pop(root, None)
            self._known[root] = worktree.known
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            before = None if earlier is None else (earlier.worktree.tree, earlier.commit.parent)
            if earlier is not None and before == (worktree.tree, parent):
                return parent, worktree, earlier.commit.id
            about = [*(("-p", parent) if parent else ()), "-m", _MESSAGE]
            env = {**env, **_identity(now)}
            commit = await git.text(repository, ["commit-tree", worktree.tree, *about], env)
            await run_in_thread(_move, folder, repository.objects_dir)
        return parent, worktree, commit


def _move(scratch: str, objects: Path) -> None:
    with RootDir(os.path.realpath(scratch)) as source, RootDir(objects) as target:
        worktree_files.move_objects(source, target)


async def head_commit(git: Git, repository: Repository) -> str | None:
    """Return the commit that is checked out, also if references are not plain files; None if there is none."""
    return read_head(repository).commit or await git.commit(repository, "HEAD")


def prefix_of(repository: Repository, folder: Path) -> bytes:
    """Return `folder` relative to the root of the working tree, with a trailing slash; empty for the root."""
    relative = os.fsencode(Path(real_path(folder)).relative_to(repository.root))
    return b"" if relative == b"." else relative + b"/"


def displayable(path: bytes) -> str:
    """Return a path as text that JSON can represent."""
    return path.decode("utf-8", "replace")


def _identity(now: datetime) -> dict[str, str]:
    date = f"@{int(now.timestamp())} +0000"
    name, email = _AUTHOR
    return {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", email), ("DATE", date))
    }
