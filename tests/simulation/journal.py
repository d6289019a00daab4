"""What happened in a world, in order and in virtual time: the messages of all clients, and what the machine did."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app_server_protocol.structs import Json

NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}")
LONG = 120
"""Characters of a text that are shown."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message, or one thing that happened otherwise."""

    seconds: float
    who: str
    """The client; empty where it is no message."""
    sent: bool
    """By the client."""
    message: Json
    """A sentence where it is no message."""
    counts: bool = False
    """It is a situation that is counted."""


class Journal:
    """Is written while a world is played."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.entries: list[Entry] = []

    def message(self, who: str, message: Json, *, sent: bool) -> None:
        self.entries.append(Entry(self._clock(), who, sent, message))

    def note(self, situation: str) -> None:
        """Note something that is counted, by its name."""
        self.entries.append(Entry(self._clock(), "", False, situation, counts=True))

    def tell(self, sentence: str) -> None:
        """Note something for the reader."""
        self.entries.append(Entry(self._clock(), "", False, sentence))


def readable(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a line for each entry. Long ids are replaced by numbers, in the order in which they come; long texts are
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
    """Return the method and the number of a message, and what it says."""
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
