"""The file that gets the final message of `app-server exec` (`-o`).

Its folder is opened before the turn, and the file is replaced after it. So what cannot be written is told before
anything is paid for, and commands of the turn cannot lead the message anywhere else: neither by a link in the place of
the file, nor by one in the place of a folder on the way to it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from app_server.beneath import Beneath
from app_server.client.command_line import InvalidCommandLine

DEVICES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""What is in there is written to as it is: `/dev/stdout`, or what a shell makes of `>(command)`."""


class MessageFile:
    """A place that can be written, as far as that is known before."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._device: int | None = None
        self._mode = 0o666 & ~_umask()
        if path.parent in DEVICES:
            self._device = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            os.write(self._device, b"")  # a device may refuse it
            return
        self._folder = Beneath.named_by_user(path.parent)
        try:
            present = self._folder.stat(path.name).st_mode
        except FileNotFoundError:
            present = stat.S_IFREG | self._mode
        if stat.S_ISREG(present):
            self._mode = stat.S_IMODE(present)
        elif not stat.S_ISLNK(present):
            raise OSError("not a regular file")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(f"files cannot be made in {path.parent}")

    def write(self, text: str) -> None:
        """Write the message, in one step where it is a file. A link in its place is replaced. Raises OSError."""
        content = text.encode("utf-8", "backslashreplace")
        if self._device is None:
            self._folder.replace(self.path.name, content, self._mode)
            return
        with open(self._device, "wb") as file:
            file.write(content)


def message_file(named: str) -> MessageFile:
    """Open the file that `-o` names. Raises InvalidCommandLine where it cannot be written."""
    try:
        return MessageFile(Path(named))
    except OSError as error:
        raise InvalidCommandLine(f"--output-last-message: {named}: {error.strerror or error}") from None


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
