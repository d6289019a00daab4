"""Files that a command line names: the one that gets the final message of `app-server exec` (`-o`), and prices.

The folder of the message is opened before the turn, and the file is replaced after it. So what cannot be written is
told before anything is paid for, and commands of the turn cannot lead the message anywhere else: neither by a link in
the place of the file, nor by one in the place of a folder on the way to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from app_server.beneath import Beneath
from app_server.client.command_line import InvalidCommandLine
from app_server.client.input_files import read_named
from app_server.client.prices import PRICES_FILE, ModelPrice, parse_prices

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


def read_prices(named: str | None, home: Path) -> Mapping[str, ModelPrice]:
    """Read the prices from the file that is named, or else from that of the home, which need not be there. Raises
    InvalidCommandLine.
    """
    path = Path(named) if named is not None else home / PRICES_FILE
    try:
        return parse_prices(read_named(path))
    except FileNotFoundError as error:
        if named is None:
            return {}
        raise InvalidCommandLine(f"--prices: {path}: {error.strerror}") from None
    except OSError as error:
        raise InvalidCommandLine(f"prices: {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InvalidCommandLine(f"prices: {path}: {error}") from None
