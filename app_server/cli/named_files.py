"""Files that a command line names: the only way in which the front ends write and read them.

A model's commands may have changed the file at such a name. So a link or file at the name of an output is replaced and
never followed, and an input has a maximum size, which a pipe has to deliver within a time limit. The folder of an
output is opened before the work begins: an output that cannot be written is reported before the work costs anything,
and no command can redirect the output meanwhile. Standard library only.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

from app_server.engine.support.rooted_fs import RefusedName, RootDir, TooLarge, read_named, read_up_to

DEVICES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""Folders whose files are used directly: `/dev/stdout`, or the files that a shell makes for `>(command)` and
`<(command)`.
"""

MAX_INPUT_BYTES = 64 * 1024 * 1024
"""Maximum size of an input, in bytes: far above any schema, list of prices or settings that a command line names."""

READ_WITHIN = 10.0
"""Time for a pipe to deliver its content, in seconds."""

PRIVATE = 0o600


class NamedOutput:
    """A file that can be written, as far as that can be checked beforehand."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """Check the file. Only the user can access a `private` file. Another file keeps its rights, or has the usual
        ones of a new file.

        Raises OSError if it could not be written.
        """
        self.path = path
        self._device: int | None = None
        self._mode = PRIVATE if private else 0o666 & ~_umask()
        if path.parent in DEVICES:
            self._device = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            )
            os.set_blocking(self._device, True)
            os.write(self._device, b"")  # reports a device that refuses it
            return
        self._folder = RootDir.named_by_user(path.parent)
        try:
            present = self._folder.stat(path.name).st_mode
        except FileNotFoundError:
            present = stat.S_IFREG | self._mode
        if stat.S_ISREG(present):
            self._mode = PRIVATE if private else stat.S_IMODE(present)
        elif not stat.S_ISLNK(present):
            raise RefusedName(errno.EINVAL, "not a regular file", str(path))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"files cannot be made in {path.parent}")

    def write(self, text: str) -> None:
        """Write the text, in one step if the output is a file. A link at its name is replaced. Raises OSError."""
        content = text.encode("utf-8", "backslashreplace")
        if self._device is None:
            self._folder.replace(self.path.name, content, self._mode)
            return
        with open(self._device, "wb") as file:
            file.write(content)


def new_private_file(path: str, content: bytes = b"") -> int:
    """Make a file that only the user may read, which replaces a file or link at `path`; return its descriptor.

    It appears with its whole content, and no link is followed. Raises OSError.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a device or pipe, or a link to one
        raise RefusedName(errno.EINVAL, "it is not a regular file", path)
    folder, name = os.path.split(path)
    with RootDir.named_by_user(folder or ".") as beneath, beneath.staged(name, PRIVATE) as file:
        file.write(content)
        return os.dup(file.fileno())


def read_input(path: Path, home: Path | None = None, most: int = MAX_INPUT_BYTES) -> bytes:
    """Return the content of a regular file, or that of a pipe which arrives in time, such as a shell's `<(command)`.
    Links are the user's own.

    `home` is the server's, whose credentials are refused. Raises OSError, and `TooLarge` beyond `most` bytes.
    """
    if path.parent not in DEVICES and not stat.S_ISFIFO(os.stat(path).st_mode):
        return read_named(os.path.abspath(path), most, home)
    # O_NONBLOCK: a pipe without a writer must not block the open.
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(pipe).st_mode):  # `<file`, as /dev/stdin
            return read_up_to(pipe, most, str(path))
        return _read_in_time(pipe, most, time.monotonic() + READ_WITHIN)
    finally:
        os.close(pipe)


def _read_in_time(pipe: int, most: int, deadline: float) -> bytes:
    content = b""
    while len(content) <= most:
        if not select.select([pipe], (), (), max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(errno.ETIMEDOUT, f"nothing came through the pipe for {READ_WITHIN:g} s")
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return content
        content += piece
    raise TooLarge(errno.EFBIG, f"it has more than {most} bytes")


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
