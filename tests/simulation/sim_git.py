"""Git in a simulated world: the real program. The loop waits for it, and then for the virtual time that it takes."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from app_server.engine.workspace.git import run_git
from app_server.engine.workspace.git.run_git import GitCommand, GitResult

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

_ENVIRONMENT = {
    "PATH": run_git.USUAL_FOLDERS,
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "user" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "user@localhost" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_DATE": "@1790000000 +0000" for role in ("AUTHOR", "COMMITTER")},
}


def make_repository(folder: Path) -> None:
    """Make a folder a repository, with all of its files committed."""
    for arguments in (("init", "-q"), ("add", "--all"), ("commit", "-q", "-m", "the beginning")):
        subprocess.run(["git", *arguments], cwd=folder, env=_ENVIRONMENT, check=True)


def _finished(command: GitCommand, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command.argv,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=command.cwd,
        env=command.env,
        check=False,
    )


@contextmanager
def git_in_the_loop(world: "SimWorld") -> Iterator[None]:
    """While the block runs, git commands run in the loop."""

    async def run(command: GitCommand, stdin: bytes = b"", timeout: float = 0.0) -> GitResult:
        done = _finished(command, stdin)
        await anyio.sleep(world.habits.git_seconds)
        return GitResult(done.returncode, done.stdout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_git, "run_git", run)
        yield
