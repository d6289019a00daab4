"""The server's home as commands see it: read-only, with everything in it but the secrets. Linux.

What is shown is put together ahead of time, since it is the same for each command, and looked over when the command
comes: a home that has changed since is put together anew. Only the files in it are added then, as a file that is shown
is held even after somebody has deleted it. A home whose entries cannot be listed, or are too many to be shown one by
one, is shown empty. Runs in a mount namespace of the command's own.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass
from typing import Any

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

MAX_ENTRIES = 200
"""Each costs a mount, which every command would wait for."""
RACY_NS = 50_000_000
"""A folder that was changed so shortly before it was read may change again without another time stamp."""


@dataclass(slots=True)
class ShownHome:
    """A home that was put together but for its files, and what it was made of."""

    path: bytes
    secrets: list[bytes]
    folder: int
    """The real folder; open until the files are shown."""
    files: list[bytes]
    changed: tuple[int, int]
    """When the folder had last changed."""
    racy: bool
    cover: tuple[int, int]
    """What lies at the path now."""

    def current(self, confine: dict[str, Any]) -> bool:
        """Whether this is what the command is to be shown. To be asked before its roots are opened."""
        path: bytes = confine["home"]
        now = _changed(os.fstat(self.folder))
        if self.racy or now != self.changed or (path, confine["secrets"]) != (self.path, self.secrets):
            return False
        # A root that holds the home is opened together with it; a fence closes the home again.
        inside = any(path.startswith(root.rstrip(b"/") + b"/") for root in confine["roots"])
        return (path in confine["fences"] or not inside) and _identity(os.stat(path)) == self.cover

    def complete(self) -> None:
        """Shows the files, too."""
        for name in self.files:
            with contextlib.suppress(OSError):
                attach(open_tree(name, AT_SYMLINK_NOFOLLOW, self.folder), os.path.join(self.path, name))
        os.close(self.folder)  # no command may come by it

    def undo(self) -> None:
        os.close(self.folder)
        with contextlib.suppress(OSError):  # another folder may have taken its place
            call("umount2", self.path, MNT_DETACH)


def show(home: bytes, secrets: list[bytes]) -> ShownHome | None:
    """Covers `home` by what is shown of it; None where there is no such folder."""
    try:
        folder = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
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
        entries = sorted(set(os.listdir(home)) - set(secrets))
    except OSError:
        return []
    return entries if len(entries) <= MAX_ENTRIES else []


def hide(home: bytes, secrets: list[bytes]) -> None:
    """Shows the server's home without its secrets, whatever files come to bear their names later."""
    shown = show(home, secrets)
    if shown is not None:
        shown.complete()


def cover(path: bytes) -> None:
    """Puts an empty device where a file is."""
    if os.path.exists(path):
        attach(open_tree(b"/dev/null"), path)


def _changed(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
