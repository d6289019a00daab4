"""Where the work in a working tree left another branch."""

from __future__ import annotations

from pathlib import Path

from app_server.core.errors import GitError
from app_server.core.git.repository import find_repository
from app_server.core.git.snapshot import Git


async def merge_base(git: Git, folder: Path, branch: str) -> str | None:
    """The newest commit that HEAD and the branch have in common. None without a repository, for a branch that it does
    not have, and for histories without a common commit.
    """
    repository = find_repository(folder)
    if repository is None:
        return None
    try:
        # The name is the client's: behind this mark it cannot be an option.
        verify = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{branch}^{{commit}}"]
        tip = (await git.output(repository, verify)).decode("ascii").strip()
        base = (await git.output(repository, ["merge-base", "HEAD", tip])).decode("ascii").strip()
    except (GitError, OSError, ValueError):
        return None
    return base or None
