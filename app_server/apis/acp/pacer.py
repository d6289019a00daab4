"""The pace of a session's lines: text that arrives within a few milliseconds is joined, and the output of a command is
sent a few times a second. Everything else is sent at once, behind the text that waits. Pure, but for the clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final

import msgspec
from msgspec import Struct

from protocol.names import SESSION_UPDATE
from protocol.structs import Json, json_bytes

TEXT_SECONDS: Final = 0.016
OUTPUT_SECONDS: Final = 0.25
MOST_TEXT: Final = 32 * 1024
"""Characters of one update, at least; text that waits is not joined beyond it."""
KEPT_OUTPUT: Final = 32 * 1024
"""Characters of a running command's output that are kept: its end."""


class Speaker(Enum):
    """The updates that are pieces of messages, by who speaks."""

    USER = "user_message_chunk"
    AGENT = "agent_message_chunk"
    THOUGHT = "agent_thought_chunk"


class _Waiting(Struct):
    """Text that is not sent yet."""

    speaker: Speaker
    message_id: str
    texts: list[str]
    length: int
    due: float


class RunningOutput(Struct):
    """What a running command prints: the end of it, and what of it is news."""

    due: float = 0.0
    """When news may be sent next."""
    news: list[str] = msgspec.field(default_factory=list)
    _kept: list[str] = msgspec.field(default_factory=list)

    def take(self, text: str) -> None:
        """Add what was printed."""
        self.news.append(text)
        self._kept.append(text)
        if len(self._kept) > 1 and sum(map(len, self._kept)) > 2 * KEPT_OUTPUT:
            self._kept[:] = [self.so_far()]

    def take_news(self, due: float) -> str:
        """Return what was printed since the last time; more is not to be sent before `due`."""
        news, self.news, self.due = "".join(self.news), [], due
        return news

    def so_far(self) -> str:
        """Return what was printed, as far as it is kept."""
        return "".join(self._kept)[-KEPT_OUTPUT:]


class LinePacer:
    """Makes lines of a session's updates, in order, and holds text back that more may follow."""

    def __init__(self, session_id: str, clock: Callable[[], float], *, paced: bool = True) -> None:
        """`clock` gives seconds. Unless `paced`, nothing waits."""
        params = f'"params":{{"sessionId":{json.dumps(session_id)},"update":'
        self._head = f'{{"method":{json.dumps(SESSION_UPDATE)},{params}'.encode()
        self.clock, self._paced = clock, paced
        self._lines: list[bytes] = []
        self._waiting: _Waiting | None = None
        self._free_at = 0.0

    @property
    def due(self) -> float | None:
        """When the text that waits is due."""
        return None if self._waiting is None else self._waiting.due

    def taken(self) -> list[bytes]:
        """Return the lines that are due, which are no longer kept."""
        lines, self._lines = self._lines, []
        return lines

    def add(self, update: bytes) -> None:
        """Add one update, behind the text that waits."""
        self.send_text()
        self._lines.append(self._head + update + b"}}")

    def text(self, speaker: Speaker, message_id: str, text: str) -> None:
        """Add a piece of a message."""
        waiting, now = self._waiting, self.clock()
        if waiting is not None:
            same = (waiting.speaker, waiting.message_id) == (speaker, message_id)
            if same and waiting.length < MOST_TEXT:
                waiting.texts.append(text)
                waiting.length += len(text)
                return
            self.send_text()
        if not self._paced or now >= self._free_at:
            self.whole_text(speaker, message_id, text)
            self._free_at = now + TEXT_SECONDS
        else:
            self._waiting = _Waiting(speaker, message_id, [text], len(text), self._free_at)

    def whole_text(self, speaker: Speaker, message_id: str, text: str) -> None:
        """Add a piece of a message that nothing is joined with."""
        head = f'{{"sessionUpdate":"{speaker.value}","messageId":{json.dumps(message_id)},"content":'
        self.add(head.encode() + b'{"type":"text","text":' + _quoted(text) + b"}}")

    def send_text(self) -> None:
        """Add the text that waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.whole_text(waiting.speaker, waiting.message_id, "".join(waiting.texts))
            self._free_at = self.clock() + TEXT_SECONDS


def update_bytes(kind: str, **fields: Json) -> bytes:
    """Return an update of that kind; fields that are None are left out."""
    given = {name: value for name, value in fields.items() if value is not None}
    return json_bytes({"sessionUpdate": kind, **given})


def _quoted(text: str) -> bytes:
    try:
        return encode_basestring(text).encode()
    except UnicodeEncodeError:
        return encode_basestring_ascii(text).encode()
