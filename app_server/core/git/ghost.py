"""Ghost snapshots: a commit of the working tree that no reference names, taken before a turn to undo it.

Taking one leaves index, HEAD, references and files alone. Restoring one is `undo`.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from app_server.core.errors import GitError
from app_server.core.git.repository import Repository, find_repository, read_head
from app_server.core.git.snapshot import Git, write_worktree
from protocol.records import dataclass
from protocol.responses import GhostCommit

NOT_A_REPOSITORY = "Snapshots disabled: current directory is not a Git repository."

_AUTHOR = ("Codex Snapshot", "snapshot@codex.local")
_MESSAGE = "codex snapshot"


@dataclass(frozen=True, slots=True)
class SnapshotUnavailable:
    """No snapshot was taken; `message` is what the client is told."""

    message: str


async def take_snapshot(git: Git, folder: Path, now: datetime) -> GhostCommit | SnapshotUnavailable:
    """A commit of the working tree below `folder` as it is now. Never raises but when cancelled."""
    repository = find_repository(folder)
    if repository is None:
        return SnapshotUnavailable(NOT_A_REPOSITORY)
    try:
        return await _commit(git, repository, prefix_of(repository, folder), now)
    except (GitError, OSError) as error:
        reason = str(error) if isinstance(error, GitError) else type(error).__name__
        return SnapshotUnavailable(f"Snapshots disabled after ghost snapshot error: {reason}.")


async def _commit(git: Git, repository: Repository, prefix: bytes, now: datetime) -> GhostCommit:
    parent = read_head(repository).commit or await _resolved_head(git, repository)
    snapshot = await write_worktree(git, repository, prefix)
    commit = await git.output(
        repository,
        ["commit-tree", snapshot.tree, *(("-p", parent) if parent else ()), "-m", _MESSAGE],
        env=_identity(now),
    )
    names = [*snapshot.untracked, *snapshot.ignored]
    return GhostCommit(
        id=commit.decode().strip(),
        parent=parent,
        preexisting_untracked_files=tuple(shown(name) for name in names if not name.endswith(b"/")),
        preexisting_untracked_dirs=tuple(shown(name[:-1]) for name in names if name.endswith(b"/")),
    )


async def _resolved_head(git: Git, repository: Repository) -> str | None:
    """HEAD as git knows it, where its references are not plain files."""
    try:
        found = await git.output(repository, ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
    except GitError:
        return None
    return found.decode().strip()


def prefix_of(repository: Repository, folder: Path) -> bytes:
    """`folder` below the root of the working tree, with a slash at its end; empty for the root."""
    relative = os.fsencode(folder.relative_to(repository.root))
    return b"" if relative == b"." else relative + b"/"


def shown(path: bytes) -> str:
    """A path as JSON can carry it."""
    return path.decode("utf-8", "replace")


def _identity(now: datetime) -> dict[str, str]:
    date = f"@{int(now.timestamp())} +0000"
    name, email = _AUTHOR
    return {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", email), ("DATE", date))
    }
