"""The folders in which tasks run, the patches of their changes, and the check of tasks before anything runs.

A task runs in a git worktree of a commit, a copy of a folder, a folder as it is, or an empty one. The check finds out
whether the folders, repositories and commits exist that tasks name.

No program of a repository is run. A worktree belongs to a repository of its own, beside it, which has its own settings
and shares the objects of another one: a repository on this machine, or one that is fetched once for all tasks. A patch
compares trees, as snapshots do (`engine.workspace.git`). A worktree is used again, after git has restored the files
that a task has changed: a commit with many files is written once, not for each task.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import Struct, msgpack

from app_server.cli.batch import batch_tasks
from app_server.cli.batch.batch_tasks import TRANSPORTS, Checkout, Numbered, Problem, Task
from app_server.cli.batch.worker_messages import CHECKOUTS, Setup
from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.filelock import hold
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.repository import Repository, config_of, find_repository
from app_server.engine.workspace.git.run_git import Git, GitCommand, objects_in, run_git
from app_server.engine.workspace.git.snapshot import write_worktree
from app_server.engine.workspace.git.worktree_files import worktree_file
from app_server_protocol.policy import CLAUDE_FOLDER, PROTECTED_FOLDERS

SLOW_GIT = 3600.0
"""Timeout of a fetch, a checkout of a large repository, or a copy, in seconds."""
SPARE = 8
"""Maximum number of idle worktrees, which wait for another task of their commit. Beyond it, the one that has waited
longest is removed.
"""
RESERVED = frozenset(os.fsencode(name) for name in (*PROTECTED_FOLDERS, CLAUDE_FOLDER))
CONFIG = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n"
SHA256 = "[extensions]\n\tobjectformat = sha256\n"
FETCH = ("-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0")
REFS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
RESTORE = ("reset", "--hard", "--quiet")
FILE = re.compile(rb"^diff --git ", re.MULTILINE)
"""Pattern that matches the begin of each file in a patch, and no line of a file's content."""
WHOLE_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
AT_ONCE = 4
"""Maximum number of repositories that are queried at the same time for a commit."""
REMOTE_SECONDS = 60.0
COPY = ("cp", "-a", "--reflink=auto") if sys.platform == "linux" else ("cp", "-Rpc")


def place_key(task: Task, base: Path, checkout: Checkout) -> str | None:
    """Return the real path of the folder in which the task has to run alone: a folder may have several names. None if
    the task has a folder of its own.
    """
    named = batch_tasks.folder_of(task, checkout)
    return None if named is None else os.path.realpath(base / named)


class WorktreeStatus(Struct, frozen=True):
    """Digests of all files in a worktree. They use the status change time, because no program can set that back."""

    files: bytes
    shape: bytes
    """Digest of names, modes and sizes."""
    git: bytes
    """Digest of its repository, computed like `files`."""


class TaskPlace(Struct):
    """The folder of one task."""

    folder: Path
    own: bool = False
    """Whether it is used by the task alone, and removed at the end."""
    repository: Repository | None = None
    """Repository with which changes are compared. None if no patch is made."""
    repo: str = ""
    """Repository of the worktree, as the task names it."""
    base: str = ""
    """Commit or tree with which the folder began."""
    made: WorktreeStatus | None = None
    """Status of the worktree when it was made. None if the folder cannot be used again."""
    found: WorktreeStatus | None = None
    """Status when it was compared. None before that."""


class Checkouts:
    """The folders of the tasks of one worker."""

    def __init__(
        self, git: Git, setup: Setup, scratch: Path, sources: Path, environment: Mapping[str, str]
    ) -> None:
        """`scratch` is a folder of this worker, `sources` one for repositories. `environment` is that of fetches."""
        self._git, self._scratch, self._sources, self._environment = git, scratch, sources, environment
        self._base, self._kind = Path(setup.folder), setup.doing.checkout
        self._kept = Path(setup.out, CHECKOUTS)
        self._spare: list[TaskPlace] = []
        """Idle worktrees without changes."""

    @asynccontextmanager
    async def place(self, task: Task) -> AsyncIterator[TaskPlace]:
        """Make the folder of a task, whose `ref` is a commit, and remove it at the end. Raises GitError and OSError."""
        own, repo = self._scratch / batch_tasks.file_name(task.id), task.repo
        if task.cwd is not None or (repo is not None and self._kind == "none"):
            yield TaskPlace(self._base / (task.cwd or repo or ""))
            return
        if repo is None:
            own.mkdir()
            place = TaskPlace(own, own=True)
        elif self._kind == "copy":
            place = await self._copied(self._base / repo, own)
        else:
            place = await self._checked_out(repo, task.ref or "")
        try:
            yield place
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave(place)

    async def _leave(self, place: TaskPlace) -> None:
        """Keep a worktree for the next task of its commit if it is unchanged or restored. Remove other folders."""
        if await self._restored(place):
            self._spare.append(place)
            if len(self._spare) > SPARE:
                await _discard(self._spare.pop(0))
        else:
            await _discard(place)

    async def _restored(self, place: TaskPlace) -> bool:
        """Restore the changed files of a worktree. Return whether it is in its initial state."""
        made = place.made
        if not place.own or made is None or place.repository is None:
            return False
        try:
            now = await run_in_thread(_status, place) if place.found is None else place.found
            if now == made:
                return True
            if now.git != made.git:
                return False  # git would restore files by its index, which may have been changed
            for arguments in (RESTORE, ("clean", "-ffdx", "--quiet")):
                await self._git.output(place.repository, arguments, timeout=SLOW_GIT)
            place.made = await run_in_thread(_status, place)
        except (GitError, OSError):
            return False
        return place.made.shape == made.shape

    async def patch(self, place: TaskPlace) -> bytes:
        """Return the patch of all changes, including new files. Raises GitError, OSError and TimeoutError."""
        repository = place.repository
        if repository is None:
            return b""
        if place.made is not None:
            place.found = await run_in_thread(_status, place)
            if place.found == place.made:
                return b""
        flags = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
        with self._git.scratch_folder() as objects:
            written = objects_in(objects, repository)
            tree = (await write_worktree(self._git, repository, Path(objects), written)).tree
            return await self._git.output(repository, ["diff", *flags, place.base, tree], env=written)

    async def keep(self, place: TaskPlace, task: Task) -> None:
        """Move a folder to its permanent location, with its repository in it. Raises GitError and OSError."""
        if place.own:
            kept = self._kept / batch_tasks.file_name(task.id)
            await remove(kept)
            self._kept.mkdir(parents=True, exist_ok=True)
            await run_in_thread(shutil.move, place.folder, kept)
            if place.made is not None and place.repository is not None:
                await remove(kept / ".git")
                await run_in_thread(shutil.move, place.repository.git_dir, kept / ".git")
            place.own = False

    async def _checked_out(self, repo: str, commit: str) -> TaskPlace:
        for spare in reversed(self._spare):
            if (spare.repo, spare.base) == (repo, commit):
                self._spare.remove(spare)
                spare.found = None
                return spare
        config, objects = CONFIG, self._base
        if batch_tasks.is_url(repo):
            objects = await self._fetched(repo, commit)
        elif (shared := repository_at(self._base / repo)) is not None:
            objects = shared.objects_dir
            if config_of(shared).get("extensions.objectformat", "").lower() == "sha256":
                config += SHA256
        own = Path(tempfile.mkdtemp(prefix="worktree~", dir=self._scratch))  # no task has such a file name
        repository = Repository(own, own.with_suffix(".git"), own.with_suffix(".git"))
        _make_repository(repository.git_dir, config, commit, str(objects))
        (own / ".git").write_bytes(b"gitdir: %b\n" % os.fsencode(repository.git_dir))
        if await self._git.commit(repository, commit) is None:
            raise GitError(f"{repo} has no commit {commit} on this machine")
        await self._git.output(repository, RESTORE, timeout=SLOW_GIT)
        place = TaskPlace(own, own=True, repository=repository, repo=repo, base=commit)
        place.made = await run_in_thread(_status, place)
        return place

    async def _fetched(self, url: str, commit: str) -> Path:
        """Fetch a repository under a lock between workers, unless it has the commit. Return the folder of its
        objects.
        """
        source = self._sources / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.git"
        lock = await run_in_thread(hold, str(source.with_suffix(".lock")), SLOW_GIT)
        try:
            _make_repository(source, CONFIG, "ref: refs/heads/none")
            for refs in (REFS, (commit,)):
                if await self._git.commit(Repository(source, source, source), commit) is None:
                    options = ("fetch", "--quiet", "--no-tags", "--", url, *refs)
                    words = (self._git.program.file(), *FETCH, f"--git-dir={source}", *options)
                    await run_program(*words, environment=fetching(self._environment))
        finally:
            os.close(lock)
        return source / "objects"

    async def _copied(self, folder: Path, own: Path) -> TaskPlace:
        await run_program(*COPY, "--", str(folder), str(own))
        repository = find_repository(own)
        if repository is None or repository.root != own:
            raise GitError(f"{folder} is no repository that can be copied")
        tree = (await write_worktree(self._git, repository, repository.objects_dir, {})).tree
        return TaskPlace(own, own=True, repository=repository, base=tree)


def _make_repository(git_dir: Path, config: str, head: str, objects: str = "") -> None:
    """Make a repository with the objects of another one. Its settings are written anew, because commands of a task may
    have changed them.
    """
    for folder in ("objects/info", "refs"):
        (git_dir / folder).mkdir(parents=True, exist_ok=True)
    for name, text in (("config", config), ("HEAD", head), ("objects/info/alternates", objects)):
        (git_dir / name).write_bytes(os.fsencode(text) + b"\n")


def repository_at(folder: Path) -> Repository | None:
    """Return the repository whose working tree is this folder, or the bare repository in it. The user has named the
    folder.
    """
    found, real = find_repository(folder), Path(os.path.realpath(folder))
    if found is not None and found.root == real:
        return found
    bare = (real / "HEAD").is_file() and (real / "objects").is_dir() and (real / "refs").is_dir()
    return Repository(real, real, real) if bare else None


async def remove(folder: Path) -> None:
    """Remove a folder with all its contents, whatever the modes of its folders are. Raises GitError."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        script = 'rm -rf -- "$1" || { chmod -R u+rwx -- "$1"; rm -rf -- "$1"; }'
        await run_program("sh", "-c", script, "rm", str(folder))


def fetching(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment in which git reaches other machines: only by the allowed transports, and without
    prompts.
    """
    ways = ":".join(each.removesuffix("://") for each in TRANSPORTS)
    return {**environment, "GIT_ALLOW_PROTOCOL": ways, "GIT_TERMINAL_PROMPT": "0"}


async def run_program(*argv: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a program to its end. Raises GitError if it fails."""
    usual = {"PATH": os.defpath, "LC_ALL": "C"}
    result = await run_git(GitCommand(argv, environment or usual, Path("/")), timeout=SLOW_GIT)
    if result.exit_code != 0:
        raise GitError(f"{argv[0]} {argv[-1]} failed with exit code {result.exit_code}")


async def _discard(place: TaskPlace) -> None:
    """Remove a folder that is used by one task alone. Raises GitError and OSError."""
    if place.own:
        await remove(place.folder)
        if place.repository is not None and place.made is not None:
            await remove(place.repository.git_dir)


def _status(place: TaskPlace) -> WorktreeStatus:
    """Return the status of a worktree. Raises OSError."""
    assert place.repository is not None
    return WorktreeStatus(*_digests(place.folder), _digests(place.repository.git_dir)[0])


def _digests(folder: Path) -> tuple[bytes, bytes]:
    """Return two digests of all files in a folder: one of the facts that change with each change of a file, and one of
    names, modes and sizes. Raises OSError.
    """
    root, folders = os.fsencode(folder), [b""]
    exact, shape = hashlib.blake2b(), hashlib.blake2b()
    while folders:
        name = folders.pop()
        try:
            with os.scandir(os.path.join(root, name)) as found:
                entries = sorted(found, key=lambda each: each.name)
            bits = os.stat(os.path.join(root, name)).st_mode
        except FileNotFoundError:
            continue  # the sandbox creates such folders while a command runs, and removes them shortly after
        if name in RESERVED and not entries:
            continue
        shape.update(msgpack.encode((name, bits)))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(os.path.join(name, entry.name))
            else:
                file = worktree_file(entry.name, entry.stat(follow_symlinks=False))
                exact.update(msgpack.encode(file))
                shape.update(msgpack.encode((file.path, file.mode, file.bits, file.size)))
    exact.update(shape.digest())
    return exact.digest(), shape.digest()


# --- checks before anything runs
def commit_key(task: Task) -> str | None:
    """Return the key of the commit of a task's `ref`. None if the task needs no commit."""
    return None if task.repo is None else f"{task.repo} {task.ref or 'HEAD'}"


class TaskChecker:
    """Checks tasks before anything runs."""

    def __init__(self, git: Git, base: Path, checkout: Checkout, environment: Mapping[str, str]) -> None:
        """`base` is the folder to which paths are relative. `environment` is that of requests to other machines."""
        self._git, self._base, self._checkout, self._environment = git, base, checkout, environment

    async def check(
        self, tasks: Sequence[Numbered], known: Mapping[str, str]
    ) -> tuple[Mapping[str, str], list[Problem]]:
        """Check what is not `known` from an earlier run. Return the commits, by `commit_key`, and the problems."""
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
        """Return the commit with which a task begins; empty if it uses the folder as it is. Raises GitError."""
        repo, ref = task.repo or "", task.ref or "HEAD"
        if batch_tasks.is_url(repo):
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
        words = (self._git.program.file(), *FETCH, "ls-remote", "--", url)
        command = GitCommand(words, fetching(self._environment), Path("/"))
        listed = await run_git(command, timeout=REMOTE_SECONDS)
        if listed.exit_code != 0:
            raise GitError(f"`repo` {url} cannot be read as a git repository")
        pairs = (line.split("\t", 1) for line in listed.stdout.decode(errors="replace").splitlines())
        ids = {pair[-1]: pair[0] for pair in pairs}
        for name in (ref, f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"):
            if name in ids:
                return ids[name]
        if WHOLE_ID.fullmatch(ref):
            return ref
        raise GitError(f"`ref` {ref} is no branch, tag or whole commit id of {url}")
