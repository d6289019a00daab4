"""The records of a session: each message with its time and source, and with its secrets masked.

A session file is JSON Lines, a head and then one record per line. The module also has the frames in which the process
that passes bytes sends data to the observer: each has a source, a time and data. Pure, except for the files that it
writes.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from math import isfinite
from typing import NoReturn

from msgspec import Struct

from app_server.engine.support.redaction import is_suspicious, masked, masked_text
from app_server_protocol.encoding import Json
from app_server_protocol.json_limits import may_nest_too_deeply, nested_too_deeply

MAX_SESSION_BYTES = 1 << 32
"""Maximum size of a file that is read, in bytes; all of it is kept in memory."""

_HEAD = struct.Struct("!BQQ")


class Source(StrEnum):
    """Origin of data, as it is written in a file."""

    CLIENT = "client"
    SERVER = "server"
    STDERR = "stderr"
    """The server's stderr."""
    INSPECTOR = "inspector"
    """The inspector: an event about the connection itself, whose data is a JSON object."""


SOURCES = tuple(Source)
"""Sources by their number in the head of a frame."""


class Frame(Struct, frozen=True):
    source: Source
    at: int
    """Time in nanoseconds since the inspector started."""
    data: bytes
    """Data. Empty if the source has ended."""


def encode_frame(source: Source, at: int, data: bytes) -> bytes:
    return _HEAD.pack(SOURCES.index(source), at, len(data)) + data


class FrameDecoder:
    """Parses frames from a stream of bytes."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes, in order."""
        self._held += data
        frames, at = [], 0
        while len(self._held) - at >= _HEAD.size:
            source, when, size = _HEAD.unpack_from(self._held, at)
            end = at + _HEAD.size + size
            if len(self._held) < end:
                break
            frames.append(Frame(SOURCES[source], when, bytes(self._held[at + _HEAD.size : end])))
            at = end
        del self._held[:at]
        return frames


class Record(Struct, frozen=True):
    source: Source
    at: float
    """Time in milliseconds since the session began."""
    size: int
    """Size on the wire, in bytes, without the line end."""
    form: str
    """Form of the text: `message` (JSON), `text` (not JSON, or the server's stderr), `base64` (not text), or
    `event`.
    """
    text: str
    """Content of the message, or the event as JSON."""
    unfinished: bool = False
    """Whether the stream ended without a line end after this line."""

    def value(self) -> Json:
        """Return the message or event; None for a record that is no JSON."""
        return json.loads(self.text) if self.form in ("message", "event") else None


class NotASession(ValueError):
    """A file is not a session. The text says where and why."""


def record_of(source: Source, at: float, line: bytes, *, unfinished: bool = False) -> tuple[Record, Json]:
    """Return the record of a line, and its masked message, if there is one."""
    size = len(line)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        if masked_text(line.decode("latin-1")) != line.decode("latin-1"):
            return Record(
                source, at, size, "text", masked_text(line.decode("utf-8", "replace")), unfinished
            ), None
        return Record(source, at, size, "base64", base64.b64encode(line).decode(), unfinished), None
    if source is Source.STDERR:
        return Record(source, at, size, "text", masked_text(text), unfinished), None
    try:
        message = decoded(text)
    except ValueError:
        return Record(source, at, size, "text", masked_text(text), unfinished), None
    if is_suspicious(text) and (hidden := masked(message)) is not message:
        message, text = hidden, compact(hidden)
    form = "event" if source is Source.INSPECTOR else "message"
    return Record(source, at, size, form, text.strip(), unfinished), message


def compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def to_line(record: Record) -> str:
    """Return a line of a session file. JSON is written as it was spelled."""
    value = (
        record.text if record.form in ("message", "event") else json.dumps(record.text, ensure_ascii=False)
    )
    more = ',"unfinished":true' if record.unfinished else ""
    head = f'{{"at":{record.at:.3f},"from":"{record.source}","size":{record.size}{more}'
    return f'{head},"{record.form}":{value}}}'


def from_line(number: int, line: str) -> Record:
    """Parse a line of a session file. Raises NotASession."""
    try:
        given = decoded(line)
        source, at = Source(given["from"]), float(given["at"])
        if not isfinite(at):
            raise ValueError("no time")
        [form] = given.keys() & {"message", "text", "base64", "event"}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise NotASession(
            f"line {number} is no line of a session: it needs `at`, `from` and a `message`"
        ) from None
    value = given[form]
    if form in ("text", "base64") and not isinstance(value, str):
        raise NotASession(f"line {number}: `{form}` must be a string")
    text = compact(masked(value)) if form in ("message", "event") else masked_text(value)
    size = given.get("size")
    return Record(
        source,
        at,
        size if isinstance(size, int) else len(text.encode("utf-8", "replace")),
        form,
        text,
        bool(given.get("unfinished")),
    )


def decoded(text: str) -> Json:
    """Return the JSON value of a text. Raises ValueError, also for a value that is nested too deeply."""
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if may_nest_too_deeply(text) and nested_too_deeply(value):
        raise ValueError("nested too deeply")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


FORMAT = "app-server-session"
VERSION = 1


class SessionHead(Struct, frozen=True):
    server: Sequence[str]
    """Command that started the server."""
    began: str
    """Date and time of the begin, ISO 8601."""

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
    """Yield the lines of a file, with their line ends."""
    yield head.to_line() + "\n"
    for record in records:
        yield to_line(record) + "\n"


def read_session(text: str) -> tuple[SessionHead, list[Record]]:
    """Parse a session file. A last line that was cut off is ignored. Raises NotASession."""
    first, *rest = text.split("\n")
    head = _head(first)
    whole = rest[:-1]  # the part after the last line end is empty, or was cut off
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


class Recorder:
    """Writes records to a file."""

    def __init__(self, fd: int, head: SessionHead) -> None:
        """Take ownership of the descriptor, and write the head. Raises OSError."""
        self._file = os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", newline="\n")
        self._file.write(head.to_line() + "\n")
        self._file.flush()

    def write(self, records: Iterable[Record]) -> None:
        """Write records. Raises OSError."""
        self._file.writelines(to_line(record) + "\n" for record in records)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
