"""The text of a running item: a message, a plan, the parts of reasoning. Pure.

A text only grows. It is kept once, in pieces: whoever makes the text adds to it, which is the decoder of the model's
answer, or for a proposed plan the turn that finds it in a message. Everybody else has the same object and offsets,
which count pieces: an event how far the text had come, the journal how far it has written the text, subscribers how far
they were sent it, the item itself if it is cut. A piece is a delta of the model. The pieces are joined here alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from app_server_protocol.engine import items
from app_server_protocol.values import replace

Part = tuple[bool, int]
"""Part of a reasoning item: whether it belongs to the summary, and its index. A message has one part."""
WHOLE: Part = (False, 0)
"""The part of a message."""

T = TypeVar("T", bound=str | bytes)


class ItemText(Struct):
    """A text that grows: a message, a part of a thought."""

    pieces: list[str] = msgspec.field(default_factory=list)

    def add(self, piece: str) -> int:
        """Add a piece. Return the offset behind it."""
        self.pieces.append(piece)
        return len(self.pieces)

    def text(self, start: int = 0, end: int | None = None) -> str:
        """Return the pieces of a range as one text."""
        return joined(self.pieces[start:end])


class Gap(Struct, frozen=True):
    """A piece that was dropped; its length says how much is missing."""

    length: int
    """Length in characters."""

    def __len__(self) -> int:
        return self.length

    def __str__(self) -> str:
        return f"\n[... {self.length} characters omitted ...]\n"


def joined(pieces: Sequence[str | Gap]) -> str:
    """Return pieces as one text, which says what is missing."""
    if len(pieces) == 1:
        return str(pieces[0])
    return "".join(map(str, runs(pieces) if Gap in set(map(type, pieces)) else pieces))


def runs(pieces: Iterable[T | Gap]) -> Iterator[T | Gap]:
    """Yield the pieces; neighbouring gaps as one."""
    length = 0
    for piece in pieces:
        if isinstance(piece, Gap):
            length += len(piece)
            continue
        if length:
            yield Gap(length)
            length = 0
        yield piece
    if length:
        yield Gap(length)


def with_text(item: items.Item, texts: Mapping[Part, str]) -> items.Item:
    """Return an item with its texts so far; unchanged if there are none, or if it has no place for them."""
    if not any(texts.values()):
        return item
    match item:
        case items.AgentMessage():
            return replace(item, content=(texts.get(WHOLE, ""),))
        case items.Plan():
            return replace(item, text=texts.get(WHOLE, ""))
        case items.Reasoning():
            parts = sorted((*part, text) for part, text in texts.items() if text)
            summary = tuple(text for in_summary, _, text in parts if in_summary)
            content = tuple(text for in_summary, _, text in parts if not in_summary)
            return replace(item, summary=summary, content=content)
        case _:
            return item
