"""What only the disk, or a server of repositories, knows of tasks: whether there are such folders, repositories and
commits, and whether a checkout would hold what lies there. Asked before anything runs, once for all tasks of a
repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from app_server.batch.checkout import FETCH, repository_at
from app_server.batch.tasks import Checkout, Numbered, Problem, Task, is_url
from app_server.core.errors import GitError
from app_server.core.git.repository import Repository
from app_server.core.git.run_git import Git, GitCommand, objects_in, run_git
from app_server.core.git.snapshot import write_worktree

AT_ONCE = 4
REMOTE_SECONDS = 60.0
_WHOLE_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def commit_key(task: Task) -> str | None:
    """Return under which name the commit of a task's `ref` is kept; None where it needs none."""
    return None if task.repo is None else f"{task.repo} {task.ref or 'HEAD'}"


class TaskChecker:
    """Checks tasks before anything runs."""

    def __init__(self, git: Git, base: Path, checkout: Checkout, environment: Mapping[str, str]) -> None:
        """`base` is what paths are relative to; `environment` that in which other machines are asked."""
        self._git, self._base, self._checkout, self._environment = git, base, checkout, environment

    async def check(
        self, tasks: Sequence[Numbered], known: Mapping[str, str]
    ) -> tuple[Mapping[str, str], list[Problem]]:
        """Check what is not `known` from an earlier run. Returns the commits, by `commit_key`, and what is wrong."""
        asked = {key: task for _, task in tasks if (key := commit_key(task)) is not None and key not in known}
        commits, wrong, limit = dict(known), dict[str, str](), anyio.Semaphore(AT_ONCE)

        async def ask(key: str, task: Task) -> None:
            async with limit:
                try:
                    commits[key] = await self._commit(task)
                except (GitError, OSError, TimeoutError) as error:
                    wrong[key] = str(error)

        async with anyio.create_task_group() as group:
            for key, task in asked.items():
                group.start_soon(ask, key, task)
        problems = [(number, wrong[key]) for number, task in tasks if (key := commit_key(task)) in wrong]
        for number, task in tasks:
            if task.cwd is not None and not (self._base / task.cwd).is_dir():
                problems.append((number, f"`cwd` {task.cwd} is no folder"))
        return commits, problems

    async def _commit(self, task: Task) -> str:
        """Return the commit that a task begins with; empty where it takes the folder as it is. Raises GitError."""
        repo, ref = task.repo or "", task.ref or "HEAD"
        if is_url(repo):
            return await self._remote_commit(repo, ref)
        repository = repository_at(self._base / repo)
        if repository is None:
            raise GitError(f"`repo` {repo} is no git repository")
        if self._checkout == "copy" and repository.git_dir != repository.root / ".git":
            raise GitError(f"`repo` {repo} is bare, or a worktree of another one, and cannot be copied")
        if self._checkout != "worktree":
            return ""
        commit = None if ref.startswith("-") else await self._git.commit(repository, ref)
        if commit is None:
            raise GitError(f"`ref` {ref} is no commit of {repo}")
        if task.ref is None and repository.git_dir != repository.root:
            await self._require_clean(repo, repository)
        return commit

    async def _require_clean(self, repo: str, repository: Repository) -> None:
        with self._git.scratch_folder() as objects:
            written = objects_in(objects, repository)
            lies = (await write_worktree(self._git, repository, Path(objects), written)).tree
        if lies != await self._git.text(repository, ["rev-parse", "HEAD^{tree}"]):
            raise GitError(
                f"`repo` {repo} has changes that a checkout of HEAD would not hold: commit them, or name a `ref`"
            )

    async def _remote_commit(self, url: str, ref: str) -> str:
        command = GitCommand((*FETCH, "ls-remote", "--", url), self._environment, Path("/"))
        listed = await run_git(command, timeout=REMOTE_SECONDS)
        if listed.exit_code != 0:
            raise GitError(f"`repo` {url} cannot be read as a git repository")
        pairs = (line.split("\t", 1) for line in listed.stdout.decode(errors="replace").splitlines())
        ids = {pair[-1]: pair[0] for pair in pairs}
        for name in (ref, f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"):
            if name in ids:
                return ids[name]
        if _WHOLE_ID.fullmatch(ref):
            return ref
        raise GitError(f"`ref` {ref} is no branch, tag or whole commit id of {url}")
