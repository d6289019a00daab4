"""The server's home as commands see it: read-only, with everything in it except the secrets. Linux.

The view is mounted ahead of time, since it is the same for each command, and checked when the command arrives: if the
home has changed, it is mounted again. Files are mounted only then, because a mounted file stays in use after it is
deleted. A home that cannot be listed, or has too many entries for one mount each, is shown empty. Runs in the command's
own mount namespace.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

from app_server.core.sandbox.confine.light_dataclasses import dataclass
from app_server.core.sandbox.confine.syscalls import (
    AT_RECURSIVE,
    AT_SYMLINK_NOFOLLOW,
    ATTR_RDONLY,
    MNT_DETACH,
    MS_NODEV,
    MS_NOSUID,
    attach,
    call,
    mount,
    open_tree,
    set_attributes,
)

TYPE_CHECKING = False  # `typing` would take a tenth of the launcher's start
if TYPE_CHECKING:
    from typing import Any

MAX_ENTRIES = 200
"""Each entry costs every command a mount."""
TRIES = 5
"""Attempts, because another folder may take the home's place at any moment."""
RACY_NS = 50_000_000
"""A folder that changed so shortly before the read may change again with the same time stamp."""


@dataclass(slots=True)
class ShownHome:
    """A mounted view without its files, and the state of the home that it was made from."""

    path: bytes
    secrets: list[bytes]
    folder: int
    """A descriptor of the real folder, closed once the files are mounted."""
    files: list[bytes]
    changed: tuple[int, int]
    """The folder's mtime and ctime."""
    racy: bool
    """It had changed too shortly before for its time stamps to prove anything."""
    cover: tuple[int, int]
    """Device and inode of the mount at the path."""

    def current(self, confine: dict[str, Any]) -> bool:
        """Tell whether the view is valid for this command. Call it before the roots are opened."""
        path: bytes = confine["home"]
        now = _changed(os.fstat(self.folder))
        if self.racy or now != self.changed or (path, confine["secrets"]) != (self.path, self.secrets):
            return False
        # A writable root that contains the home makes it writable as well, unless the home is protected in it.
        inside = any(path.startswith(root.rstrip(b"/") + b"/") for root in confine["roots"])
        return (path in confine["protected"] or not inside) and _identity(os.stat(path)) == self.cover

    def complete(self) -> None:
        """Mount the files as well."""
        for name in self.files:
            with contextlib.suppress(OSError):
                attach(open_tree(name, AT_SYMLINK_NOFOLLOW, self.folder), os.path.join(self.path, name))
        os.close(self.folder)  # no command may inherit it

    def undo(self) -> None:
        os.close(self.folder)
        with contextlib.suppress(OSError):  # another folder may have taken its place
            call("umount2", self.path, MNT_DETACH)


def show(home: bytes, secrets: list[bytes]) -> ShownHome | None:
    """Mount the view, without files, over `home`. None if there is no such folder."""
    for _ in range(TRIES):
        try:
            folder = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return _show(home, secrets, folder)
        except OSError as error:
            os.close(folder)
            if error.errno != errno.EINVAL:
                raise
            # What is at the path is no mount: another folder has taken its place since.
    raise OSError(errno.EAGAIN, "the server's home is replaced again and again")


def _show(home: bytes, secrets: list[bytes], folder: int) -> ShownHome:
    changed = _changed(os.fstat(folder))
    entries = _entries(home, secrets)
    mount(b"home", home, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=755,size=256k")
    files: list[bytes] = []
    for name in entries:
        path = os.path.join(home, name)
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                tree = open_tree(name, AT_RECURSIVE | AT_SYMLINK_NOFOLLOW, folder)
                os.mkdir(path)
                attach(tree, path)
            else:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
                files.append(name)
    set_attributes(home, add=ATTR_RDONLY)
    racy = time.time_ns() - max(changed) < RACY_NS
    return ShownHome(home, secrets, folder, files, changed, racy, _identity(os.stat(home)))


def _entries(home: bytes, secrets: list[bytes]) -> list[bytes]:
    try:
        staged = tuple(
            b"." + name + b"." for name in secrets
        )  # the next content of one, or what a kill left of it
        entries = sorted(name for name in set(os.listdir(home)) - set(secrets) if not name.startswith(staged))
    except OSError:
        return []
    return entries if len(entries) <= MAX_ENTRIES else []


def hide(home: bytes, secrets: list[bytes]) -> None:
    """Mount the complete view. The secrets stay hidden, even if their files are replaced later."""
    shown = show(home, secrets)
    if shown is not None:
        shown.complete()


def cover(path: bytes) -> None:
    """Mount /dev/null over a file."""
    if os.path.exists(path):
        attach(open_tree(b"/dev/null"), path)


def _changed(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
