"""Undoes the changes of a turn in a working tree: rewrites and removes files; keeps the index and HEAD.

Only files that the turn changed are touched, and only if they are still as the turn left them: everything else belongs
to the user, and is kept. Git's checkout is not used, because it runs filters and hooks that the repository names. New
files that git ignores are kept: they may be build results from outside the turn.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct

from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.ghost import displayable, head_commit
from app_server.engine.workspace.git.repository import Repository, find_repository
from app_server.engine.workspace.git.run_git import TIME_LIMIT, Git
from app_server.engine.workspace.git.snapshot import pathspec, usual_bits
from app_server.engine.workspace.git.worktree_files import SUBMODULE, SYMLINK, UNKNOWN, Blobs, look_at
from app_server_protocol.responses import GhostCommit, SnapshotOfTurn

MAX_RESTORED_BYTES = 64 * 1024 * 1024
"""Maximum size of a file that is restored, in bytes; a larger one is kept. It is also the maximum that is read from git
at once.
"""
LOOKING_LIMIT = 60.0
"""Timeout of reading the files that a turn changed, in seconds."""

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CHANGE = re.compile(rb":(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) [A-Z]\d*\0([^\0]+)\0")

State = tuple[int, str]
"""Mode and object id of a file."""


class TurnChange(Struct, frozen=True):
    """The change of one file by a turn. A state is None if the file did not exist."""

    path: bytes
    before: State | None
    after: State | None

    @property
    def object_id(self) -> bytes:
        """Object id of the content to put back."""
        assert self.before is not None
        return self.before[1].encode()


class Undone(Struct, frozen=True):
    """Result of an undo. Names are relative to the root of the working tree."""

    restored: int
    """Number of files that were restored."""
    kept: tuple[str, ...]
    """Files that the turn changed and that were kept: they have been changed since, or could not be put back."""


async def undo_turn(git: Git, folder: Path, ghost: GhostCommit) -> Undone:
    """Undo the changes of a turn. Raises `GitError` before anything is changed."""
    repository = await run_in_thread(find_repository, folder)
    if repository is None:
        raise GitError("the current directory is not a Git repository")
    turn, after = _checked(repository, ghost)
    try:
        with anyio.fail_after(TIME_LIMIT):
            changes = await _changes(git, repository, ghost.id, after, os.fsencode(turn.folder))
            users = await _committed_since(git, repository, after)
        users |= {change.path for change in changes if not change.before and _existed(ghost, change.path)}
        with git.scratch_folder() as scratch:
            files = _Files(
                git.home, repository, turn, usual_bits(Path(scratch)).st_mode, sha256=len(after) == 64
            )
        changes = await run_in_thread(files.look, changes, users)
        groups = await _groups(git, repository, files, [change for change in changes if change.before])
    except TimeoutError:
        raise GitError("git did not end, or the files could not be read, in time") from None
    except OSError as error:
        raise GitError(f"the working tree cannot be read: {error.strerror}") from error
    # Files are put back before any are removed. Then follow the files whose place a new file or folder had taken.
    await _write(git, repository, files, groups)
    await run_in_thread(files.remove, [change for change in changes if not change.before])
    blocked, files.blocked = files.blocked, []
    await _write(git, repository, files, [[change] for change in blocked])
    kept = files.kept | {change.path for change in files.blocked}
    return Undone(files.done, tuple(displayable(path) for path in sorted(kept)))


async def _groups(
    git: Git, repository: Repository, files: _Files, changes: Sequence[TurnChange]
) -> list[list[TurnChange]]:
    """Return the files in groups that can be read from git at once. Raises `GitError` if git lacks the content of a
    file.
    """
    names = b"".join(change.object_id + b"\n" for change in changes)
    output = await git.output(repository, ["cat-file", "--batch-check"], names)
    groups: list[list[TurnChange]] = []
    room = 0
    for change, line in zip(changes, output.splitlines(), strict=True):
        parts = line.split()
        if len(parts) != 3 or parts[1] != b"blob":
            raise GitError("the snapshot is not complete any more")
        size = int(parts[2])
        if size > MAX_RESTORED_BYTES:
            files.kept.add(change.path)
            continue
        if size > room:
            groups.append([])
            room = MAX_RESTORED_BYTES
        groups[-1].append(change)
        room -= size
    return groups


async def _write(
    git: Git, repository: Repository, files: _Files, groups: Iterable[Sequence[TurnChange]]
) -> None:
    for group in groups:
        names = b"".join(change.object_id + b"\n" for change in group)
        try:
            output = await git.output(repository, ["cat-file", "--batch"], names)
        except GitError:
            files.kept |= {change.path for change in group}
            continue
        await run_in_thread(files.write, group, output)


def _checked(repository: Repository, ghost: GhostCommit) -> tuple[SnapshotOfTurn, str]:
    """Return the data for an undo, and the commit of the working tree at the turn's end. Raises `GitError` if the
    snapshot lacks them, or is of another working tree.
    """
    turn, here = ghost.turn, displayable(os.fsencode(repository.root))
    if turn is None:
        raise GitError(
            "it does not say of which folder it is, so the turn's changes cannot be told from yours"
        )
    if turn.worktree != here:
        raise GitError(
            f"it is of the working tree {turn.worktree}, and this conversation works in {here} now"
        )
    if turn.after is None:
        raise GitError(
            "the turn was cut off before what it left was stored, so its changes cannot be told from yours; "
            f"`git diff {ghost.id}` shows both"
        )
    if not _OBJECT_ID.fullmatch(ghost.id) or not _OBJECT_ID.fullmatch(turn.after):
        raise GitError("the snapshot's id is none of git")
    return turn, turn.after


async def _changes(
    git: Git, repository: Repository, old: str, new: str, prefix: bytes = b""
) -> list[TurnChange]:
    """Return the files below `prefix` that differ between two trees or commits."""
    flags = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv")
    output = await git.output(repository, ["diff-tree", *flags, old, new, *pathspec(prefix)])
    changes = []
    for old_mode, new_mode, old_id, new_id, path in _CHANGE.findall(output):
        before, after = _state(old_mode, old_id), _state(new_mode, new_id)
        if before != after and not {b".git", b"..", b".", b""} & set(path.lower().split(b"/")):
            changes.append(TurnChange(path, before, after))
    return changes


def _state(mode: bytes, object_id: bytes) -> State | None:
    number = int(mode, 8)
    return None if number in (0, SUBMODULE) else (number, object_id.decode())


async def _committed_since(git: Git, repository: Repository, after: str) -> set[bytes]:
    """Return the files whose committed content differs from that at the turn's end: the user has committed them, or has
    switched the branch.
    """
    then, now = await git.commit(repository, f"{after}^"), await head_commit(git, repository)
    if then == now:
        return set()
    empty = await git.text(repository, ["hash-object", "-t", "tree", "--stdin"])
    return {change.path for change in await _changes(git, repository, then or empty, now or empty)}


def _existed(ghost: GhostCommit, path: bytes) -> bool:
    """Return whether a file that is not in the snapshot existed before it, by itself or in an untracked folder."""
    name = displayable(path)
    return name in ghost.preexisting_untracked_files or any(
        name.startswith(folder + "/") for folder in ghost.preexisting_untracked_dirs
    )


class _Files:
    """The files of a working tree during an undo. Its methods block."""

    def __init__(
        self, home: Path, repository: Repository, turn: SnapshotOfTurn, usual: int, *, sha256: bool
    ) -> None:
        """Open the files of a working tree. `usual`: the mode of a new file."""
        self._home, self._root, self._objects = home, repository.root, repository.objects_dir
        self._folder = os.fsencode(turn.folder)
        self._private, self._usual, self._sha256 = frozenset(turn.private_files), usual, sha256
        self.done = 0
        self.kept: set[bytes] = set()
        self.blocked: list[TurnChange] = []
        """Changes of files whose path, or a folder of it, is taken by something else."""

    def look(self, changes: Iterable[TurnChange], users: Set[bytes]) -> list[TurnChange]:
        """Return the changes that can be undone: the file is as the turn left it, and is not the user's."""
        found = []
        with self._opened() as (_, blobs):
            for change in changes:
                now = _present(blobs, change.path)
                if now == change.after and change.path not in users:
                    found.append(change)
                elif now != change.before:
                    self.kept.add(change.path)
        return found

    def write(self, changes: Iterable[TurnChange], output: bytes) -> None:
        """Put files back, with the output of `git cat-file --batch`."""
        at = 0
        with self._opened() as (worktree, blobs):
            for change in changes:
                end = output.index(b"\n", at)
                start, at = end + 1, end + 2 + int(output[at:end].split()[-1])
                self._try(change, blobs, partial(self._write, worktree, change, output[start : at - 1]))

    def remove(self, changes: Iterable[TurnChange]) -> None:
        """Remove new files, and the folders that become empty."""
        with self._opened() as (worktree, blobs):
            for change in changes:
                self._try(change, blobs, partial(self._remove, worktree, change.path))

    @contextmanager
    def _opened(self) -> Iterator[tuple[RootDir, Blobs]]:
        with RootDir(self._root, self._home) as worktree:
            yield worktree, Blobs(worktree, sha256=self._sha256, until=time.monotonic() + LOOKING_LIMIT)

    def _try(self, change: TurnChange, blobs: Blobs, act: Callable[[], None]) -> None:
        """Undo the change of one file, if it is still as the turn left it."""
        try:
            if blobs.id_of(change.path) == change.after:
                act()
                self.done += 1
            else:
                self.kept.add(change.path)
        except (IsADirectoryError, NotADirectoryError):
            self.blocked.append(change)
        except OSError:
            self.kept.add(change.path)

    def _write(self, worktree: RootDir, change: TurnChange, content: bytes) -> None:
        assert change.before is not None
        mode = change.before[0]
        if mode == SYMLINK:
            worktree.replace_with_link(change.path, content)
            return
        present = look_at(worktree, change.path)
        bits = (self._usual if present is None or present.mode == SYMLINK else present.bits) & 0o777
        bits = bits | (bits & 0o444) >> 2 if mode & 0o100 else bits & ~0o111
        if displayable(change.path) in self._private:
            bits &= 0o700
        try:
            with RootDir(self._objects) as aside, worktree.staged(change.path, bits, aside) as file:
                file.write(content)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EACCES):
                raise
            worktree.replace(change.path, content, bits)

    def _remove(self, worktree: RootDir, path: bytes) -> None:
        worktree.remove(path)
        folder = path.rpartition(b"/")[0]
        while len(folder) >= len(self._folder) and folder:
            try:
                worktree.remove_folder(folder)
            except OSError:
                break
            folder = folder.rpartition(b"/")[0]


def _present(blobs: Blobs, path: bytes) -> State | None:
    try:
        return blobs.id_of(path)
    except TimeoutError:
        raise
    except OSError:
        return UNKNOWN, ""
