"""A session as a file: JSON Lines, a head and then one record a line. Pure, but for the files that it writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence

from app_server.beneath import Beneath, RefusedName
from app_server.inspector.session_records import NotASession, Record, compact, decoded, from_line, to_line
from app_server.masking import masked
from protocol.base import Json
from protocol.records import dataclass

FORMAT = "app-server-session"
VERSION = 1


@dataclass(frozen=True, slots=True)
class SessionHead:
    server: Sequence[str]
    """The command."""
    began: str
    """Date and time, ISO 8601."""

    def shown_server(self) -> list[str]:
        """Return the command with its secrets masked."""
        return [str(word) for word in masked([*self.server])]

    def to_line(self) -> str:
        return compact(
            {
                "format": FORMAT,
                "version": VERSION,
                "began": self.began,
                "server": self.shown_server(),
            }
        )


def session_lines(head: SessionHead, records: Iterable[Record]) -> Iterator[str]:
    """The lines of a file, with their ends."""
    yield head.to_line() + "\n"
    for record in records:
        yield to_line(record) + "\n"


def read_session(text: str) -> tuple[SessionHead, list[Record]]:
    """Raises NotASession. A last line that was cut off counts as not there."""
    first, *rest = text.split("\n")
    head = _head(first)
    whole = rest[:-1]  # what follows the last line end is empty, or was cut off
    return head, [from_line(number, line) for number, line in enumerate(whole, 2) if line.strip()]


def _head(line: str) -> SessionHead:
    wanted = f'the first line must be {{"format":"{FORMAT}","version":{VERSION},...}}'
    try:
        given = _object(line)
    except ValueError:
        raise NotASession(wanted) from None
    if given.get("format") != FORMAT:
        raise NotASession(wanted)
    if given.get("version") != VERSION:
        raise NotASession(f"version {given.get('version')!r:.50} of the format is not known; {wanted}")
    server = given.get("server")
    words = [_sendable(each) for each in server] if isinstance(server, list) else []
    return SessionHead(words, _sendable(given.get("began", "")))


def _sendable(value: Json) -> str:
    """Return a text that is valid Unicode."""
    return str(value).encode("utf-8", "replace").decode()


def _object(line: str) -> dict[str, Json]:
    value = decoded(line)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def new_private_file(path: str, content: bytes = b"") -> int:
    """Make a file that only the user may read, in the place of a file or link at `path`; return its descriptor.

    It is whole when it appears, and nothing is written where a link leads. Raises OSError.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a device or pipe, also behind a link
        raise RefusedName(errno.EINVAL, "it is not a regular file", path)
    folder, name = os.path.split(path)
    with Beneath.named_by_user(folder or ".") as beneath, beneath.staged(name, 0o600) as file:
        file.write(content)
        return os.dup(file.fileno())


class Recorder:
    """Writes records to a file."""

    def __init__(self, fd: int, head: SessionHead) -> None:
        """Takes over the descriptor. Raises OSError."""
        self._file = os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", newline="\n")
        self._file.write(head.to_line() + "\n")
        self._file.flush()

    def write(self, records: Iterable[Record]) -> None:
        """Raises OSError."""
        self._file.writelines(to_line(record) + "\n" for record in records)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
