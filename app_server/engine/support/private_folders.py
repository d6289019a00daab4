"""Folders that only the user can access, for temporary data of the server and its front ends: drafts, checkouts,
objects of snapshots, homes of demonstrations. They are in `tmp` of the home.

The system's folder for temporary files is a writable root by default, so sandboxed commands may change, replace or add
files there. No command may write in the home.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from app_server.engine.support.private_folder import PRIVATE, UnsafeFolder, make_private_folder

FOLDER = "tmp"
CHECKPOINTS = "checkpoints"
"""Name of the folder in the home with the checkpoints of threads."""
HOOK_CONTEXTS = "hook-contexts"
"""Name of the folder in `tmp` with what hooks told the model in full, by thread."""
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def own_folder(home: str | os.PathLike[str], *names: str) -> str:
    """Return a folder in the home, the last of these nested names. Each folder is made if it is missing, and rights of
    others to it are removed. Raises OSError, also if one is a link or another user's.
    """
    folder = os.path.realpath(home)
    for name in names:
        folder = os.path.join(folder, name)
        try:
            make_private_folder(folder)
        except UnsafeFolder as refused:
            raise PermissionError(errno.EPERM, str(refused)) from None
    return folder


def remove_own_folder(home: str | os.PathLike[str], *names: str) -> None:
    """Remove a folder in the home, the last of these nested names, with its content, if there is one."""
    folder = os.path.join(os.path.realpath(home), *names)
    if all(name not in ("", ".", "..") and os.sep not in name for name in names) and not os.path.islink(
        folder
    ):
        shutil.rmtree(folder, ignore_errors=True)


def remove_folders_of(home: str | os.PathLike[str], thread: str) -> None:
    """Remove the checkpoints of a thread, and what hooks told its model."""
    remove_own_folder(home, CHECKPOINTS, thread)
    remove_own_folder(home, FOLDER, HOOK_CONTEXTS, thread)


def temporary_folder(home: str | os.PathLike[str]) -> str:
    """Return the folder for temporary files of a home. The home is made, too. Raises OSError."""
    os.makedirs(home, PRIVATE, exist_ok=True)
    return own_folder(home, FOLDER)


@contextmanager
def private_folder(home: str | os.PathLike[str], kind: str) -> Iterator[str]:
    """Make a folder for the block, and remove it with its content; `kind` is the prefix of its name. Raises OSError.

    Folders of this kind that killed processes left are removed, too: the kernel has released their locks.
    """
    parent = temporary_folder(home)
    _remove_leftovers(parent, f"{kind}-")
    path, lock = _new_folder(parent, f"{kind}-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _new_folder(parent: str, prefix: str) -> tuple[str, int]:
    """Make a folder that is locked as long as the returned descriptor is open."""
    while True:
        path = os.path.join(parent, f"{prefix}{os.urandom(8).hex()}")
        os.mkdir(path, PRIVATE)
        lock = os.open(path, _LIST)
        taken = False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:  # on a file system without locks, leftovers are never removed
            taken = isinstance(error, BlockingIOError)
        with suppress(FileNotFoundError):
            if not taken and os.path.samestat(os.lstat(path), os.fstat(lock)):
                return path, lock
        os.close(lock)  # another process took it for a leftover


def _remove_leftovers(parent: str, prefix: str) -> None:
    """Remove the folders of a kind that no process holds locked."""
    for name in os.listdir(parent):
        if not name.startswith(prefix):
            continue
        path = os.path.join(parent, name)
        with suppress(OSError):  # a process holds it, or removes it
            lock = os.open(path, _LIST)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
