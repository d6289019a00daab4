"""Files that a command line names: the one way in which the front ends write and read them.

Commands of a model may have changed what is at such a name. So a link or file in the place of an output is replaced and
never followed, and an input is of a limited size, which a pipe has to bring within a time. The folder of an output is
opened before the work begins: what cannot be written is told before anything is paid for, and no command can lead the
output elsewhere meanwhile. Standard library only.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path

from app_server.beneath import Beneath, RefusedName, TooLarge, read_named, read_up_to

DEVICES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""What is in there is used as it is: `/dev/stdout`, or what a shell makes of `>(command)` and `<(command)`."""

MAX_INPUT_BYTES = 64 * 1024 * 1024
"""Far above any schema, list of prices or settings that a command line names."""

READ_WITHIN = 10.0
"""Seconds for what a pipe brings."""

PRIVATE = 0o600


class NamedOutput:
    """A file that can be written, as far as that is known before."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """A `private` file is the user's alone. Another one keeps its rights, or has the usual ones of a new file.

        Raises OSError where nothing could be written.
        """
        self.path = path
        self._device: int | None = None
        self._mode = PRIVATE if private else 0o666 & ~_umask()
        if path.parent in DEVICES:
            self._device = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            )
            os.set_blocking(self._device, True)
            os.write(self._device, b"")  # a device may refuse it
            return
        self._folder = Beneath.named_by_user(path.parent)
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
        """Write the text, in one step where it is a file. A link in its place is replaced. Raises OSError."""
        content = text.encode("utf-8", "backslashreplace")
        if self._device is None:
            self._folder.replace(self.path.name, content, self._mode)
            return
        with open(self._device, "wb") as file:
            file.write(content)


def new_private_file(path: str, content: bytes = b"") -> int:
    """Make a file that only the user may read, in the place of a file or link at `path`; return its descriptor.

    It is whole when it appears, and nothing is written where a link leads. Raises OSError.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a device or pipe, also behind a link
        raise RefusedName(errno.EINVAL, "it is not a regular file", path)
    folder, name = os.path.split(path)
    with Beneath.named_by_user(folder or ".") as beneath, beneath.staged(name, PRIVATE) as file:
        file.write(content)
        return os.dup(file.fileno())


def read_input(path: Path, home: Path | None = None, most: int = MAX_INPUT_BYTES) -> bytes:
    """Return the content of a regular file, or what a pipe brings in time, as of a shell's `<(command)`. Links are the
    user's own.

    `home` is the server's, whose credentials are refused. Raises OSError, `TooLarge` beyond `most` bytes.
    """
    if path.parent not in DEVICES and not stat.S_ISFIFO(os.stat(path).st_mode):
        return read_named(os.path.abspath(path), most, home)
    # A pipe without a writer holds up no opening.
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
