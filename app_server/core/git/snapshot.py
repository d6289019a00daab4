"""Writes the current working tree into a git tree object, without changing the index, HEAD or any reference.

Steps: (1) list the index and the untracked files; (2) compare them with the files' status; (3) hash the files that may
have changed, without filters; (4) create a separate index in a scratch folder; (5) write its tree.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import anyio

from app_server.core.errors import GitError
from app_server.core.git.git_program import GitProgram
from app_server.core.git.index import (
    LIST_INDEX,
    SYMLINK,
    Changes,
    Worktree,
    WorktreeFile,
    compare,
    parse_index,
)
from app_server.core.git.repository import Repository
from app_server.core.git.run_git import RunGit, run_git
from app_server.core.threads import run_in_thread
from protocol.records import dataclass

MAX_UNTRACKED_FILES = 100_000
MAX_UNTRACKED_BYTES = 64 * 1024 * 1024
"""A larger untracked file is not part of a snapshot: every turn would copy it."""
MAX_HASHED_BYTES = 2 * 1024 * 1024 * 1024
HASH_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Git:
    """Runs git commands, and provides folders for temporary files."""

    scratch: Path
    program: GitProgram = field(default_factory=GitProgram)
    run: RunGit = run_git

    def scratch_folder(self) -> tempfile.TemporaryDirectory[str]:
        """A temporary folder, as a context manager. Raises `OSError`."""
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="git-", dir=self.scratch)

    async def output(
        self,
        repository: Repository,
        arguments: Sequence[str],
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> bytes:
        """The output of a command. Raises `GitError` if it fails."""
        result = await self.run(self.program.command(repository, arguments, env), stdin)
        if result.exit_code != 0:
            raise GitError(f"git {arguments[0]} failed with exit code {result.exit_code}")
        return result.stdout

    async def outputs(
        self, repository: Repository, *commands: Sequence[str], env: Mapping[str, str] | None = None
    ) -> list[bytes]:
        """The outputs of these commands, run concurrently. Raises the first `GitError`."""
        found: list[bytes | GitError] = [b""] * len(commands)

        async def run(number: int, arguments: Sequence[str]) -> None:
            try:
                found[number] = await self.output(repository, arguments, env=env)
            except GitError as error:
                found[number] = error

        async with anyio.create_task_group() as group:
            for number, arguments in enumerate(commands):
                group.start_soon(run, number, arguments)
        for one in found:
            if isinstance(one, GitError):
                raise one
        return [one for one in found if isinstance(one, bytes)]


@dataclass(frozen=True, slots=True)
class WorktreeSnapshot:
    """A tree object, and the untracked files of that time: folders have a trailing slash."""

    tree: str
    untracked: tuple[bytes, ...]
    ignored: tuple[bytes, ...]


async def write_worktree(
    git: Git, repository: Repository, prefix: bytes = b"", env: Mapping[str, str] | None = None
) -> WorktreeSnapshot:
    """The tree of the current working tree. Examines only files below `prefix`; takes the others from the index. `env`
    may redirect new objects. Raises `GitError`.
    """
    written = index_mtime_ns(repository)
    index, others, ignored = await git.outputs(
        repository, LIST_INDEX, list_untracked(prefix), list_ignored(prefix), env=env
    )
    untracked = split_paths(others)
    if len(untracked) > MAX_UNTRACKED_FILES:
        raise GitError(f"there are more than {MAX_UNTRACKED_FILES} untracked files")
    changes, added = await run_in_thread(_look_at, repository.root, index, written, untracked, prefix)
    files = [*changes.changed, *added]
    if sum(file.size for file in files) > MAX_HASHED_BYTES:
        raise GitError("the changed and untracked files are too large")
    with git.scratch_folder() as folder:
        hashed = await _hash(git, repository, files, Path(folder), env)
        own_index = {**(env or {}), "GIT_INDEX_FILE": str(Path(folder) / "index")}
        entries = b"".join(_index_lines(changes, hashed))
        await git.output(repository, ["update-index", "-z", "--index-info"], entries, own_index)
        tree = await git.output(repository, ["write-tree", "--missing-ok"], env=own_index)
    return WorktreeSnapshot(tree.decode().strip(), tuple(untracked), tuple(_whole_names(ignored)))


def list_untracked(prefix: bytes) -> list[str]:
    return ["ls-files", "--others", "--exclude-standard", "-z", *pathspec(prefix)]


def list_ignored(prefix: bytes) -> list[str]:
    displayable = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"]
    return [*displayable, *pathspec(prefix)]


def _whole_names(ignored: bytes) -> list[bytes]:
    """Ignored files and folders, without folders that git lists only because all their files are ignored."""
    names = split_paths(ignored)
    holding = {name[: at + 1] for name in names for at in range(len(name) - 1) if name[at] == ord("/")}
    return [name for name in names if name not in holding]


def pathspec(prefix: bytes) -> list[str]:
    """Arguments that limit a command to a folder; none for the whole working tree."""
    return ["--", os.fsdecode(prefix)] if prefix else []


def split_paths(output: bytes) -> list[bytes]:
    return [path for path in output.split(b"\0") if path]


def _look_at(
    root: Path, index: bytes, written: int, untracked: Iterable[bytes], prefix: bytes
) -> tuple[Changes, list[WorktreeFile]]:
    worktree = Worktree(root)
    changes = compare(worktree, parse_index(index), written, prefix)
    files = (worktree.file(path) for path in untracked)
    return changes, [file for file in files if file is not None and file.size <= MAX_UNTRACKED_BYTES]


async def _hash(
    git: Git, repository: Repository, files: list[WorktreeFile], folder: Path, env: Mapping[str, str] | None
) -> list[tuple[WorktreeFile, str]]:
    """The files with their object ids, without files that vanish meanwhile."""
    worktree = Worktree(repository.root)
    for _ in range(HASH_ATTEMPTS):
        sources = list(_hash_sources(repository.root, files, folder))
        if not sources:
            return []
        command = git.program.command(repository, ["hash-object", "-w", "--no-filters", "--stdin-paths"], env)
        result = await git.run(command, b"".join(quoted(path) + b"\n" for _, path in sources))
        ids = result.stdout.decode().split()
        if result.exit_code == 0 and len(ids) == len(sources):
            return [(file, object_id) for (file, _), object_id in zip(sources, ids, strict=True)]
        files = [again for file in files if (again := worktree.file(file.path)) is not None]
    raise GitError("the changed files could not be read")


def _hash_sources(
    root: Path, files: Iterable[WorktreeFile], folder: Path
) -> Iterator[tuple[WorktreeFile, bytes]]:
    """A path with the content of each file; for a link, a temporary file that contains its target."""
    for number, file in enumerate(files):
        place = os.path.join(os.fsencode(root), file.path)
        if file.mode == SYMLINK:
            try:
                target = os.readlink(place)
            except OSError:
                continue
            copy = folder / f"link-{number}"
            copy.write_bytes(target)
            place = os.fsencode(copy)
        yield file, place


def quoted(path: bytes) -> bytes:
    """A path, quoted for git's line-based input, whatever bytes it contains."""
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def _index_lines(changes: Changes, hashed: Iterable[tuple[WorktreeFile, str]]) -> Iterator[bytes]:
    for entry in changes.kept:
        yield b"%06o %s\t%s\0" % (entry.mode, entry.object_id.encode(), entry.path)
    for file, object_id in hashed:
        yield b"%06o %s\t%s\0" % (file.mode, object_id.encode(), file.path)


def index_mtime_ns(repository: Repository) -> int:
    """The time of the last change of the index. Call it before reading the index."""
    try:
        return (repository.git_dir / "index").stat().st_mtime_ns
    except OSError:
        return 0
