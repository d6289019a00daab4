"""Copies files and directories for a client: regular files, directories and links; links are copied as links.

In a directory, pipes, devices and sockets are left out. Synchronous, for worker threads; `stop` is asked between
pieces.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from app_server.core.client_files.opening import FileRefused, opened
from app_server.core.client_files.replacing import replace_content, write_all
from protocol.records import dataclass

PIECE = 1 << 20

Stop = Callable[[], bool]


class CopyStopped(Exception):
    """Nobody waits for the copy any more."""


@dataclass(frozen=True, slots=True)
class Copying:
    home: str
    stop: Stop

    def copy(self, source: str, destination: str, *, recursive: bool) -> None:
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), destination)
        elif stat.S_ISREG(mode):
            self._copy_file(source, destination)
        elif not stat.S_ISDIR(mode):
            raise FileRefused("fs/copy only supports regular files, directories, and symlinks")
        elif not recursive:
            raise FileRefused("fs/copy requires recursive: true when sourcePath is a directory")
        else:
            self._copy_tree(source, destination)

    def _copy_tree(self, source: str, destination: str) -> None:
        real, target = os.path.realpath(source), os.path.realpath(destination)
        if target == real or target.startswith(real.rstrip("/") + "/"):
            raise FileRefused("fs/copy cannot copy a directory to itself or one of its descendants")
        pending = [(source, destination)]
        while pending:
            folder, copied = pending.pop()
            os.makedirs(copied, exist_ok=True)
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._check()
                    target = os.path.join(copied, entry.name)
                    if entry.is_symlink():
                        os.symlink(os.readlink(entry.path), target)
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, target))
                    elif entry.is_file(follow_symlinks=False):
                        self._copy_file(entry.path, target)

    def _copy_file(self, source: str, destination: str) -> None:
        with opened(source, self.home) as (descriptor, info):
            if os.path.exists(destination) and os.path.samestat(info, os.stat(destination)):
                return
            rights = stat.S_IMODE(info.st_mode) & 0o777

            def fill(target: int) -> None:
                os.lseek(descriptor, 0, os.SEEK_SET)
                while part := os.read(descriptor, PIECE):
                    self._check()
                    write_all(target, part)

            replace_content(destination, fill, info.st_size, rights)

    def _check(self) -> None:
        if self.stop():
            raise CopyStopped
