"""What a working tree has that others lack: the diff to the closest commit of a remote, and where its work left another
branch.

The diff includes untracked files. New objects go to a scratch folder, so that the repository is not changed.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from app_server.core.errors import GitError
from app_server.core.git.repository import Repository, find_repository
from app_server.core.git.run_git import Git, objects_in
from app_server.core.git.snapshot import write_worktree


class DiffToRemote(Struct, frozen=True):
    """A commit that a remote has, and the diff from it to the working tree."""

    sha: str
    diff: str


async def diff_to_remote(git: Git, folder: Path) -> DiffToRemote | None:
    """Find what no remote has; None without a repository or a known remote, or if git fails."""
    repository = find_repository(folder)
    if repository is None:
        return None
    try:
        sha = await _closest_remote_commit(git, repository)
        return None if sha is None else DiffToRemote(sha, await _diff_from(git, repository, sha))
    except (GitError, OSError):
        return None


async def _closest_remote_commit(git: Git, repository: Repository) -> str | None:
    """Return HEAD if a remote has it; else its nearest ancestor, along first parents, that a remote has."""
    remotes = await git.output(repository, ["for-each-ref", "--count=1", "refs/remotes"])
    if not remotes.strip():
        return None
    head = await git.commit(repository, "HEAD")
    if head is None:
        return None
    listed = await git.output(
        repository, ["rev-list", "--first-parent", "--boundary", "HEAD", "--not", "--remotes"]
    )
    lines = listed.decode().split()
    if not lines:
        return head
    boundary = [line.removeprefix("-") for line in lines if line.startswith("-")]
    return boundary[0] if boundary else None


async def _diff_from(git: Git, repository: Repository, sha: str) -> str:
    with git.scratch_folder() as folder:
        env = objects_in(folder, repository)
        snapshot = await write_worktree(git, repository, Path(folder), env)
        flags = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
        diff = await git.output(repository, ["diff", *flags, sha, snapshot.tree], env=env)
    return diff.decode("utf-8", "replace")


async def merge_base(git: Git, folder: Path, branch: str) -> str | None:
    """Return the newest commit that HEAD and the branch have in common. None without a repository, for a branch that it
    does not have, and for histories without a common commit.
    """
    repository = find_repository(folder)
    if repository is None:
        return None
    try:
        # The name is the client's: behind this mark it cannot be an option.
        verify = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{branch}^{{commit}}"]
        tip = await git.text(repository, verify)
        return await git.text(repository, ["merge-base", "HEAD", tip]) or None
    except (GitError, OSError, ValueError):
        return None
