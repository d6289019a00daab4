"""Restores a working tree from a ghost snapshot: rewrites files and removes new ones; keeps the index and HEAD.

It does not use git's checkout, which runs filters and hooks that the repository names. It keeps new files that git
ignores: they may be build results from outside the turn.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from app_server.core.errors import GitError
from app_server.core.git.ghost import displayable, prefix_of
from app_server.core.git.index import LIST_INDEX, SUBMODULE, SYMLINK, Worktree, compare, parse_index
from app_server.core.git.repository import Repository, find_repository
from app_server.core.git.snapshot import Git, index_mtime_ns, list_untracked, split_paths
from app_server.core.threads import run_in_thread
from protocol.records import dataclass
from protocol.responses import GhostCommit

OBJECTS_AT_ONCE = 64

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_TREE_ENTRY = re.compile(rb"(\d{6}) [a-z]+ ([0-9a-f]+)\t([^\0]+)\0")


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file of the snapshot."""

    path: bytes
    mode: int
    object_id: str


async def restore_snapshot(git: Git, folder: Path, ghost: GhostCommit) -> None:
    """Restores the files below `folder`. If it raises `GitError`, the changes until then remain."""
    repository = find_repository(folder)
    if repository is None:
        raise GitError("the current directory is not a Git repository")
    if not _OBJECT_ID.fullmatch(ghost.id):
        raise GitError("the snapshot's id is none of git")
    prefix = prefix_of(repository, folder)
    written = index_mtime_ns(repository)
    listing = ["ls-tree", "-r", "-z", "--full-tree", ghost.id]
    tree, index, untracked = await git.outputs(repository, listing, LIST_INDEX, list_untracked(prefix))
    wanted = {file.path: file for file in _tree_files(tree) if file.path.startswith(prefix)}
    try:
        missing = await run_in_thread(_missing, repository.root, wanted, index, written)
        tracked = [entry.path for entry in parse_index(index) if entry.mode != SUBMODULE]
        new = [
            path
            for path in (*split_paths(untracked), *tracked)
            if path.startswith(prefix) and path not in wanted and not _existed(ghost, path)
        ]
        # Removal comes first: a new folder may occupy the path of a file.
        await run_in_thread(_remove, repository.root, new)
        for start in range(0, len(missing), OBJECTS_AT_ONCE):
            await _rewrite(git, repository, missing[start : start + OBJECTS_AT_ONCE])
    except OSError as error:
        raise GitError(f"a file could not be restored: {error.strerror}") from error


def _tree_files(listing: bytes) -> Iterable[TreeFile]:
    for mode, object_id, path in _TREE_ENTRY.findall(listing):
        parts = path.lower().split(b"/")
        if int(mode, 8) != SUBMODULE and not {b".git", b"..", b".", b""} & set(parts):
            yield TreeFile(path, int(mode, 8), object_id.decode())


def _existed(ghost: GhostCommit, path: bytes) -> bool:
    """Whether an untracked file existed before, by itself or in an untracked folder."""
    name = displayable(path)
    return name in ghost.preexisting_untracked_files or any(
        name.startswith(folder + "/") or name == folder + "/" for folder in ghost.preexisting_untracked_dirs
    )


def _missing(
    root: Path, wanted: Mapping[bytes, TreeFile], index: bytes, index_mtime_ns: int
) -> list[TreeFile]:
    """The files of the snapshot that are missing or changed. Does not read files that match the index."""
    worktree = Worktree(root)
    entries = parse_index(index)
    kept = {(e.path, e.mode, e.object_id) for e in compare(worktree, entries, index_mtime_ns).kept}
    missing = []
    for file in wanted.values():
        if (file.path, file.mode, file.object_id) in kept:
            continue
        there = worktree.file(file.path)
        if there is None or there.mode != file.mode or _content_id(root, file) != file.object_id:
            missing.append(file)
    return missing


def _content_id(root: Path, file: TreeFile) -> str | None:
    place = os.path.join(os.fsencode(root), file.path)
    try:
        if file.mode == SYMLINK:
            data = os.readlink(place)
        else:
            with open(
                os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
            ) as content:
                data = content.read()
    except OSError:
        return None
    kind = hashlib.sha1 if len(file.object_id) == 40 else hashlib.sha256
    return kind(b"blob %d\0" % len(data) + data).hexdigest()


async def _rewrite(git: Git, repository: Repository, files: Sequence[TreeFile]) -> None:
    names = b"".join(file.object_id.encode() + b"\n" for file in files)
    output = await git.output(repository, ["cat-file", "--batch"], names)
    await run_in_thread(_write_all, repository.root, files, output)


def _write_all(root: Path, files: Sequence[TreeFile], output: bytes) -> None:
    at = 0
    for file in files:
        end = output.index(b"\n", at)
        parts = output[at:end].split()
        if len(parts) != 3 or parts[1] != b"blob":
            raise GitError("the snapshot is not complete any more")
        at = end + 1 + int(parts[2])
        _write(root, file, output[end + 1 : at])
        at += 1


def _write(root: Path, file: TreeFile, data: bytes) -> None:
    """Replaces a file atomically; replaces links in its path by folders."""
    place = os.path.join(os.fsencode(root), file.path)
    _make_folders(os.fsencode(root), file.path.rpartition(b"/")[0])
    beside = place + b".restored"
    if file.mode == SYMLINK:
        os.symlink(data, beside)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, file.mode & 0o777), "wb") as copy:
            copy.write(data)
    try:
        os.replace(beside, place)
    except OSError:
        os.unlink(beside)
        raise


def _make_folders(root: bytes, folder: bytes) -> None:
    place = root
    for part in folder.split(b"/") if folder else ():
        place = os.path.join(place, part)
        try:
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                os.unlink(place)
                os.mkdir(place)
        except FileNotFoundError:
            os.mkdir(place)


def _remove(root: Path, paths: Iterable[bytes]) -> None:
    """Removes files, and the folders that become empty."""
    worktree = Worktree(root)
    base = os.fsencode(root)
    for path in paths:
        if worktree.file(path) is None:
            continue
        os.unlink(os.path.join(base, path))
        folder = path.rpartition(b"/")[0]
        while folder:
            try:
                os.rmdir(os.path.join(base, folder))
            except OSError:
                break
            folder = folder.rpartition(b"/")[0]
