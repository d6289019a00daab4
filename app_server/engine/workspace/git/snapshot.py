"""Writes the current working tree into a git tree object, without changing the index, HEAD or any reference. Also
returns the diff from a commit that a remote has.

1. List the index and the untracked files.
2. Compare them with the files' status.
3. Store the contents of the files that may have changed, without filters.
4. Create a separate index in a scratch folder.
5. Write its tree.

Files that an earlier snapshot has read and that have not changed are not read again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from app_server.engine.config.file_rules import MayRead, reads_all
from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.repository import Repository, config_of, find_repository
from app_server.engine.workspace.git.run_git import TIME_LIMIT, Git, objects_in
from app_server.engine.workspace.git.worktree_files import (
    LIST_INDEX,
    SUBMODULE,
    UNKNOWN,
    Blobs,
    IndexEntry,
    Signature,
    WorktreeFile,
    compare,
    is_of_one_file,
    look_at,
    parse_index,
)

UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z")
IGNORED = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
MAX_UNTRACKED_FILES = 100_000
MAX_UNTRACKED_BYTES = 64 * 1024 * 1024
"""Maximum size of an untracked file in a snapshot, in bytes: every turn would copy a larger one."""
MAX_HASHED_BYTES = 2 * 1024 * 1024 * 1024
Known = Mapping[bytes, tuple[Signature, str]]
"""Object ids of files that were read earlier, with the status that they had."""


class WorktreeSnapshot(Struct, frozen=True, kw_only=True):
    """A tree object, and facts about the working tree that are not in it."""

    tree: str
    """Object id of the tree; empty if none was written."""
    entries: Sequence[bytes]
    """Entries of the tree: mode, object id, a tab, the path, and a NUL."""
    digest: bytes
    """Hash of the entries of the tree: equal for equal trees."""
    untracked: tuple[bytes, ...]
    """Untracked files, and folders with repositories of their own, whose names have a trailing slash."""
    ignored: tuple[bytes, ...]
    """Ignored files and folders, at the beginning of a turn."""
    unread: tuple[bytes, ...]
    """Tracked files that are not in the tree, because they cannot be read or stored."""
    nested: tuple[bytes, ...]
    """Repositories in the working tree."""
    private: tuple[bytes, ...]
    """Files that only their owner may read; empty if that is usual for this user."""
    known: Known
    at_ns: int
    """Time at which the snapshot began, by the clock of the file system, in nanoseconds since 1970."""


async def write_worktree(
    git: Git,
    repository: Repository,
    objects: Path,
    env: Mapping[str, str],
    prefix: bytes = b"",
    *,
    known: Known | None = None,
    earlier: WorktreeSnapshot | None = None,
    may_read: MayRead = reads_all,
    writes_tree: bool = True,
) -> WorktreeSnapshot:
    """Write the tree of the current working tree. Only files below `prefix` are examined; the others are taken from the
    index.

    Contents are stored in the folder `objects`; `env` tells git where to write trees. `earlier` is the snapshot from
    the beginning of the turn. `may_read` returns whether commands of the turn may read a real path. Files that may not
    be read are left out, like those that cannot be read. Without `writes_tree`, only contents are stored. Raises
    `GitError`, `OSError` or `TimeoutError`.
    """
    written, until = _index_mtime_ns(repository), time.monotonic() + TIME_LIMIT
    commands = (UNTRACKED, IGNORED) if earlier is None else (UNTRACKED,)
    listing = [[*command, *pathspec(prefix)] for command in commands]
    index, others, *ignored = await git.outputs(repository, LIST_INDEX, *listing, env=env)
    untracked = split_paths(others)
    if len(untracked) > MAX_UNTRACKED_FILES:
        raise GitError(f"there are more than {MAX_UNTRACKED_FILES} untracked files")
    with git.scratch_folder() as folder:
        usual = usual_bits(Path(folder))
        at_ns = usual.st_ctime_ns
        reading = _Reading(git.home, repository, objects, until, known or {}, at_ns, may_read)
        await run_in_thread(reading.run, parse_index(index), written, untracked, prefix, earlier)
        entries = b"".join(reading.lines)
        digest = hashlib.sha256(entries).digest()
        if earlier is not None and earlier.digest == digest:
            tree = earlier.tree
        elif not writes_tree:
            tree = ""
        else:
            own_index = {**env, "GIT_INDEX_FILE": str(Path(folder) / "index")}
            await git.output(repository, ["update-index", "-z", "--index-info"], entries, own_index)
            tree = await git.text(repository, ["write-tree", "--missing-ok"], own_index)
    return WorktreeSnapshot(
        tree=tree,
        entries=tuple(reading.lines),
        digest=digest,
        untracked=tuple(untracked),
        ignored=tuple(_whole_names(b"".join(ignored))),
        unread=tuple(reading.unread),
        nested=(*reading.submodules, *(path for path in untracked if path.endswith(b"/"))),
        private=tuple(reading.private) if usual.st_mode & 0o077 else (),
        known=reading.known,
        at_ns=usual.st_ctime_ns,
    )


def usual_bits(folder: Path) -> os.stat_result:
    """Return the status of a new file in a folder of this server: its permission bits are the usual ones of the
    user.
    """
    with open(folder / "usual", "xb") as file:
        return os.fstat(file.fileno())


class _Reading:
    """Reads the files that changed, in a thread, and collects the entries of the tree."""

    def __init__(
        self,
        home: Path,
        repository: Repository,
        objects: Path,
        until: float,
        known: Known,
        at_ns: int,
        may_read: MayRead,
    ) -> None:
        self._may_read = may_read
        self._home, self._repository, self._objects, self._until = home, repository, objects, until
        self._known, self._at_ns = known, at_ns
        self.lines: list[bytes] = []
        self.unread: list[bytes] = []
        self.submodules: list[bytes] = []
        self.private: list[bytes] = []
        self.known: dict[bytes, tuple[Signature, str]] = {}

    def run(
        self,
        entries: Sequence[IndexEntry],
        written: int,
        untracked: Sequence[bytes],
        prefix: bytes,
        earlier: WorktreeSnapshot | None,
    ) -> None:
        """Read the files. Raises `TimeoutError` after the time limit."""
        sha256 = config_of(self._repository).get("extensions.objectformat", "").lower() == "sha256"
        # A file that was untracked at the beginning of the turn may be ignored now: the agent may have changed the
        # rules.
        others = dict.fromkeys((*untracked, *(earlier.untracked if earlier is not None else ())))
        with RootDir(self._repository.root, self._home) as worktree, RootDir(self._objects) as objects:
            changes = compare(worktree, entries, written, prefix, None if earlier is None else earlier.at_ns)
            for entry in changes.kept:
                self.lines.append(_index_line(entry.mode, entry.object_id, entry.path))
                if entry.mode == SUBMODULE and entry.path.startswith(prefix):
                    self.submodules.append(entry.path)
            self.private += changes.private
            tracked = {entry.path for entry in entries}
            added = (look_at(worktree, path) for path in others if path not in tracked)
            files = [
                *changes.changed,
                *((file, None) for file in added if file is not None and file.size <= MAX_UNTRACKED_BYTES),
            ]
            if sum(file.size for file, _ in files) > MAX_HASHED_BYTES:
                raise GitError("the changed and untracked files are too large")
            blobs = Blobs(worktree, sha256=sha256, until=self._until)
            for file, staged in files:
                self._read(blobs, objects, file, staged)

    def _read(self, blobs: Blobs, objects: RootDir, file: WorktreeFile, staged: str | None) -> None:
        known = self._known.get(file.path)
        try:
            hidden = not self._may_read(os.path.join(str(self._repository.root), os.fsdecode(file.path)))
            if hidden or file.mode == UNKNOWN:
                object_id = None
            elif known is not None and known[0] == file.signature:
                object_id = known[1]
            else:
                file, object_id = blobs.keep(file, objects, staged)
        except OSError as error:
            if not is_of_one_file(error):
                raise
            object_id = None
        if object_id is None:
            self.unread.append(file.path)
            return
        self.lines.append(_index_line(file.mode, object_id, file.path))
        if file.ctime_ns < self._at_ns:  # a later change may leave the same timestamp
            self.known[file.path] = file.signature, object_id
        if not file.bits & 0o077:
            self.private.append(file.path)


def _index_line(mode: int, object_id: str, path: bytes) -> bytes:
    return b"%06o %s\t%s\0" % (mode, object_id.encode(), path)


def _whole_names(ignored: bytes) -> list[bytes]:
    """Return ignored files and folders, without folders that git lists only because all their files are ignored."""
    names = split_paths(ignored)
    holding = {name[: at + 1] for name in names for at in range(len(name) - 1) if name[at] == ord("/")}
    return [name for name in names if name not in holding]


def pathspec(prefix: bytes) -> list[str]:
    """Return the arguments that limit a command to a folder; none for the whole working tree."""
    return ["--", os.fsdecode(prefix)] if prefix else []


def split_paths(output: bytes) -> list[bytes]:
    return [path for path in output.split(b"\0") if path]


def _index_mtime_ns(repository: Repository) -> int:
    """Return the modification time of the index. Call it before reading the index."""
    try:
        return (repository.git_dir / "index").stat().st_mtime_ns
    except OSError:
        return 0


class DiffToRemote(Struct, frozen=True):
    """A commit that a remote has, and the diff from it to the working tree."""

    sha: str
    diff: str


async def diff_to_remote(git: Git, folder: Path) -> DiffToRemote | None:
    """Return the diff from the closest commit that a remote has; None if there is no repository or no known remote, or
    if git fails.
    """
    repository = find_repository(folder)
    if repository is None:
        return None
    try:
        sha = await _closest_remote_commit(git, repository)
        return None if sha is None else DiffToRemote(sha, await _diff_from(git, repository, sha))
    except (GitError, OSError):
        return None


async def _closest_remote_commit(git: Git, repository: Repository) -> str | None:
    """Return HEAD if a remote has it; else its nearest ancestor along first parents that a remote has; None if there is
    none.
    """
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
