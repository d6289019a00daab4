"""Joins the messages of the Messages API as JSON once, since each request of a conversation repeats nearly all of the
last one.

The marks of the prompt cache move with each request, and text may still be added at the end. So the messages before the
last four are not changed, and only the rest is joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_not
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.model.answers import Exchange
from app_server_protocol.encoding import Json, json_bytes

MARKED: Final = 2
"""Number of messages of the user that have a cache mark: the last ones of a request."""


class Block(Struct, frozen=True):
    """One content block as JSON."""

    json: bytes
    size: int
    """Size that counts in estimates, in bytes."""
    is_thought: bool = False


class Message(Struct):
    """One message."""

    role: str
    blocks: list[Block] = msgspec.field(default_factory=list)
    begun_by: int = 0
    """Index of the exchange that its first block comes from, among the exchanges that were written together."""

    def joined(self, mark: bytes = b"") -> bytes:
        """Return the message as JSON. `mark`: text that replaces the closing brace of its last block, if it is not
        empty.
        """
        blocks = [block.json for block in self.blocks]
        if mark:
            blocks[-1] = blocks[-1][:-1] + mark
        return b'{"role":"%b","content":[%b]}' % (self.role.encode(), b",".join(blocks))


WriteMessages = Callable[[Sequence[Exchange], bool], list[Message]]
"""Returns the messages of exchanges; the flag says whether the conversation begins with them."""


class JoinedMessages:
    """The messages of the last request. Messages that no later request changes are stored joined."""

    def __init__(self) -> None:
        self._forms: list[object] = []
        """Written forms of the joined exchanges: an exchange that changes gets another form."""
        self._json: list[bytes] = []
        """JSON of all joined messages, in one piece; empty if there are none."""
        self._size = 0
        """Size of the blocks of the joined messages, for estimates, in bytes."""
        self._open: list[Message] = []
        """Messages that are not joined yet."""

    def take(self, exchanges: Sequence[Exchange], write: WriteMessages) -> None:
        """Set the exchanges of a request."""
        count = len(self._forms)
        if len(exchanges) < count or any(map(is_not, self._forms, (each.written for each in exchanges))):
            count = 0
        messages = write(exchanges[count:], False) if count else []
        if not messages or messages[0].role != "assistant":
            count, self._forms, self._json, self._size = 0, [], [], 0
            messages = write(exchanges, True)
        self._open = messages
        self._size += self._settle(exchanges, count)

    def _settle(self, exchanges: Sequence[Exchange], count: int) -> int:
        """Join the messages before the answer that precedes the marked messages, and return the size of their blocks in
        bytes. `count` exchanges are joined already.
        """
        of_user = [n for n, each in enumerate(self._open) if each.role == "user"]
        end = of_user[-MARKED] - 1 if len(of_user) >= MARKED else 0
        if end <= 0:
            return 0
        settled, self._open = self._open[:end], self._open[end:]
        begun_by = self._open[0].begun_by
        self._forms += [each.written for each in exchanges[count : count + begun_by]]
        self._json = [b",".join((*self._json, *(each.joined() for each in settled)))]
        for each in self._open:
            each.begun_by -= begun_by
        return sum(block.size for each in settled for block in each.blocks)

    @property
    def last(self) -> Sequence[Message]:
        """The last messages: at least two, if there are two."""
        return self._open

    @property
    def size(self) -> int:
        """Size of all blocks, for estimates, in bytes."""
        return self._size + sum(block.size for each in self._open for block in each.blocks)

    def json(self, mark: Json | None) -> bytes:
        """Return the messages as JSON, with marks on the last block of the user's last two messages."""
        of_user = [n for n, each in enumerate(self._open) if each.role == "user"]
        marked = frozenset(of_user[-MARKED:]) if mark is not None else frozenset()
        end = b',"cache_control":%b}' % json_bytes(mark)
        rest = (each.joined(end if n in marked else b"") for n, each in enumerate(self._open))
        return b",".join((*self._json, *rest))
