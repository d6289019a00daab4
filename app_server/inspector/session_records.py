"""One line of a session: what passed, when and from whom, with its secrets masked; also as a line of a file. Pure."""

from __future__ import annotations

import base64
import json
from math import isfinite
from typing import NoReturn

from app_server.inspector.frames import Source
from app_server.masking import is_suspicious, masked, masked_text
from protocol.base import Json
from protocol.message_outline import may_nest_too_deeply, nested_too_deeply
from protocol.records import dataclass

FROM = {
    Source.CLIENT: "client",
    Source.SERVER: "server",
    Source.STDERR: "stderr",
    Source.INSPECTOR: "inspector",
}
SOURCES = {name: source for source, name in FROM.items()}


@dataclass(frozen=True, slots=True)
class Record:
    source: Source
    at: float
    """Milliseconds since the session began."""
    size: int
    """Bytes on the wire, without the line end."""
    form: str
    """`message` (JSON), `text` (of no JSON, or the server's stderr), `base64` (of no text), or `event`."""
    text: str
    """What passed, or as JSON what happened."""
    unfinished: bool = False
    """The stream ended without an end of this line."""

    def value(self) -> Json:
        """The message or event; None for what is no JSON."""
        return json.loads(self.text) if self.form in ("message", "event") else None


class NotASession(ValueError):
    """A file that is no session; the text says where and why."""


def record_of(source: Source, at: float, line: bytes, *, unfinished: bool = False) -> tuple[Record, Json]:
    """The record of a line, with the masked message that it holds, if any."""
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
    """A line of a session file. JSON is taken over as it was spelled."""
    value = (
        record.text if record.form in ("message", "event") else json.dumps(record.text, ensure_ascii=False)
    )
    more = ',"unfinished":true' if record.unfinished else ""
    head = f'{{"at":{record.at:.3f},"from":"{FROM[record.source]}","size":{record.size}{more}'
    return f'{head},"{record.form}":{value}}}'


def from_line(number: int, line: str) -> Record:
    """Raises NotASession."""
    try:
        given = decoded(line)
        source, at = SOURCES[given["from"]], float(given["at"])
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
    """Return the JSON value of a text. Raises ValueError, also for one that is nested too deeply."""
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
