"""Snapshots of the working tree, taken before and after a turn to undo it: contents of files in a folder of the home,
or ghost commits in the repository, which no reference names.

A snapshot does not change the index, HEAD, references or files. Git writes only to a scratch folder. The objects of a
commit are copied from there into the repository, below the folder that was opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
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
    """A snapshot of a working tree."""

    repository: Repository
    prefix: bytes
    head: str | None
    """Commit that was checked out; None if there was none."""
    worktree: WorktreeSnapshot
    objects: Path
    """Folder that has the contents which the repository lacks."""
    may_read: MayRead = reads_all
    commit: GhostCommit | None = None
    """Commit of the snapshot in the repository; None if it has none."""

    @property
    def missing(self) -> Iterator[bytes]:
        """The names that were there and are not in the snapshot; those of folders end with a slash."""
        worktree = self.worktree
        return chain(worktree.untracked, worktree.unread, worktree.ignored)


class Snapshots:
    """Takes snapshots for all conversations of one server."""

    def __init__(self, git: Git) -> None:
        self.git = git
        self._slow: set[Path] = set()
        """Roots of repositories in which a snapshot took too long."""
        self._known: dict[tuple[Path, Path | None], Known] = {}

    def try_again(self, root: Path) -> bool:
        """Allow snapshots again in a repository in which one took too long. Return whether one did."""
        slow = root in self._slow
        self._slow.discard(root)
        return slow

    async def take(
        self,
        folder: Path,
        now: datetime,
        may_read: MayRead = reads_all,
        *,
        objects: Path | None = None,
    ) -> TakenSnapshot | SnapshotUnavailable:
        """Take a snapshot of the readable files below `folder`: contents go to the folder `objects`, or else into the
        repository with a commit. Never raises, except when cancelled.
        """
        repository = await run_in_thread(find_repository, folder)
        if repository is None:
            return SnapshotUnavailable(NOT_A_REPOSITORY)
        if repository.root in self._slow:
            return SnapshotUnavailable(TOO_SLOW)
        if not await run_in_thread(is_own, repository):
            return SnapshotUnavailable(LEADS_ELSEWHERE)
        try:
            with anyio.fail_after(TIME_LIMIT):
                prefix = prefix_of(repository, folder)
                taken = await self._worktree(repository, prefix, may_read, objects)
                return taken if objects is not None else await self._with_commit(taken, now)
        except TimeoutError:
            self._slow.add(repository.root)
            return SnapshotUnavailable(TOO_SLOW)
        except (GitError, OSError) as error:
            reason = str(error) if isinstance(error, GitError) else type(error).__name__
            return SnapshotUnavailable(
                f"Snapshots disabled after ghost snapshot error: {reason.removesuffix('.')}."
            )

    async def finish(self, taken: TakenSnapshot, now: datetime) -> TakenSnapshot | None:
        """Take a second snapshot at the turn's end. If the first has a commit, that of the second has its data, and the
        id of the new state. Return None if it failed.
        """
        try:
            with anyio.fail_after(TIME_LIMIT):
                objects = None if taken.commit is not None else taken.objects
                done = await self._worktree(taken.repository, taken.prefix, taken.may_read, objects, taken)
                if taken.commit is None:
                    return done
                unchanged = (done.worktree.tree, done.head) == (taken.worktree.tree, taken.head)
                after = taken.commit.id if unchanged else await self._commit_tree(done, now)
        except TimeoutError:
            self._slow.add(taken.repository.root)
            return None
        except (GitError, OSError):
            return None
        assert taken.commit.turn is not None
        return replace(done, commit=replace(taken.commit, turn=replace(taken.commit.turn, after=after)))

    async def _worktree(
        self,
        repository: Repository,
        prefix: bytes,
        may_read: MayRead,
        objects: Path | None,
        earlier: TakenSnapshot | None = None,
    ) -> TakenSnapshot:
        """Take a snapshot without a commit. `earlier` is the snapshot from the beginning of the turn."""
        git, place = self.git, (repository.root, objects)
        head = await head_commit(git, repository)
        with git.scratch_folder() as folder:
            worktree = await snapshot.write_worktree(
                git,
                repository,
                objects or repository.objects_dir,
                objects_in(folder, repository),
                prefix,
                known=self._known.get(place) if earlier is None else earlier.worktree.known,
                earlier=None if earlier is None else earlier.worktree,
                may_read=may_read,
                writes_tree=objects is None,
            )
            self._known.pop(place, None)
            self._known[place] = worktree.known
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            if objects is None:
                await run_in_thread(_move, folder, repository.objects_dir)
        return TakenSnapshot(repository, prefix, head, worktree, objects or repository.objects_dir, may_read)

    async def _with_commit(self, taken: TakenSnapshot, now: datetime) -> TakenSnapshot:
        id, worktree, names = await self._commit_tree(taken, now), taken.worktree, [*taken.missing]
        turn = SnapshotOfTurn(
            worktree=displayable(os.fsencode(taken.repository.root)),
            folder=displayable(taken.prefix),
            private_files=tuple(map(displayable, worktree.private)),
            nested_repositories=tuple(displayable(name.rstrip(b"/")) for name in worktree.nested),
        )
        commit = GhostCommit(
            id=id,
            parent=taken.head,
            preexisting_untracked_files=tuple(displayable(name) for name in names if not name.endswith(b"/")),
            preexisting_untracked_dirs=tuple(displayable(name[:-1]) for name in names if name.endswith(b"/")),
            turn=turn,
        )
        return replace(taken, commit=commit)

    async def _commit_tree(self, taken: TakenSnapshot, now: datetime) -> str:
        """Write the commit of a snapshot's tree, and return its id."""
        git, repository = self.git, taken.repository
        about = [*(("-p", taken.head) if taken.head else ()), "-m", _MESSAGE]
        with git.scratch_folder() as folder:
            env = {**objects_in(folder, repository), **_identity(now)}
            id = await git.text(repository, ["commit-tree", taken.worktree.tree, *about], env)
            await run_in_thread(_move, folder, repository.objects_dir)
        return id


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
