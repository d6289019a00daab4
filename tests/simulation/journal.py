"""The journal of a world, in order and in virtual time: the messages of all clients, and the events of the machine."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app_server_protocol.encoding import Json

NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")
LONG = 120
"""Maximum number of characters that are shown of a text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message, or one other event."""

    seconds: float
    who: str
    """Name of the client; empty if the entry is no message."""
    sent: bool
    """Whether the client sent the message."""
    message: Json
    """The message, or a sentence if the entry is no message."""
    counts: bool = False
    """Whether the entry is a situation that is counted."""


class Journal:
    """Journal that is written while a world is played."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.entries: list[Entry] = []

    def message(self, who: str, message: Json, *, sent: bool) -> None:
        self.entries.append(Entry(self._clock(), who, sent, message))

    def note(self, situation: str) -> None:
        """Note a situation that is counted, by its name."""
        self.entries.append(Entry(self._clock(), "", False, situation, counts=True))

    def tell(self, sentence: str) -> None:
        """Note a sentence for the reader."""
        self.entries.append(Entry(self._clock(), "", False, sentence))


def readable(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a line for each entry. Long ids are replaced by numbers, in the order of their appearance; long texts are
    cut.
    """
    numbers: dict[str, str] = {}

    def short(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"#{len(numbers) + 1}")

    for entry in entries:
        if entry.who:
            text = f"{entry.who:4} {'>' if entry.sent else '<'} {_line(entry.message)}"
        else:
            text = f"{'':4} * {entry.message}"
        yield f"{entry.seconds:9.3f} {NAMES.sub(short, text)}"


def _line(message: Json) -> str:
    """Return the method and the number of a message, and its content."""
    for what in ("params", "result", "error"):
        if what in message:
            said = json.dumps(_cut(message[what]))
            head = [str(message[name]) for name in ("method", "id") if message.get(name) is not None]
            return " ".join([*head, *([what] if what != "params" else []), said])
    return json.dumps(message)


def _cut(value: Json) -> Json:
    match value:
        case str() if len(value) > LONG:
            return f"{value[:LONG]}… ({len(value)})"
        case dict():
            return {name: _cut(each) for name, each in value.items() if each is not None}
        case list():
            return [_cut(each) for each in value]
        case _:
            return value
