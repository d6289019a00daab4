"""Ghost snapshots: a commit of the working tree without a reference, created before a turn to undo it.

Creating one does not change the index, HEAD, references or files. `restore` undoes a turn.
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
    """No snapshot was created; `message` is the text for the client."""

    message: str


async def take_snapshot(git: Git, folder: Path, now: datetime) -> GhostCommit | SnapshotUnavailable:
    """A commit of the current working tree below `folder`. Never raises, except when cancelled."""
    repository = find_repository(folder)
    if repository is None:
        return SnapshotUnavailable(NOT_A_REPOSITORY)
    try:
        return await _commit(git, repository, prefix_of(repository, folder), now)
    except (GitError, OSError) as error:
        reason = str(error) if isinstance(error, GitError) else type(error).__name__
        return SnapshotUnavailable(
            f"Snapshots disabled after ghost snapshot error: {reason.removesuffix('.')}."
        )


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
        preexisting_untracked_files=tuple(displayable(name) for name in names if not name.endswith(b"/")),
        preexisting_untracked_dirs=tuple(displayable(name[:-1]) for name in names if name.endswith(b"/")),
    )


async def _resolved_head(git: Git, repository: Repository) -> str | None:
    """HEAD as git resolves it, for repositories whose references are not plain files."""
    try:
        found = await git.output(repository, ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
    except GitError:
        return None
    return found.decode().strip()


def prefix_of(repository: Repository, folder: Path) -> bytes:
    """`folder` relative to the root of the working tree, with a trailing slash; empty for the root."""
    relative = os.fsencode(folder.relative_to(repository.root))
    return b"" if relative == b"." else relative + b"/"


def displayable(path: bytes) -> str:
    """A path as text that JSON can represent."""
    return path.decode("utf-8", "replace")


def _identity(now: datetime) -> dict[str, str]:
    date = f"@{int(now.timestamp())} +0000"
    name, email = _AUTHOR
    return {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", name), ("EMAIL", email), ("DATE", date))
    }
