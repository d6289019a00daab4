"""Places of the turns of a file: what an index knows of each turn, and the snapshot of it that is saved. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from app_server.engine.storage.decode import DecoderState

MIN_BYTES = 1024 * 1024
"""Size of a file from which on its turns are saved, in bytes: to read less takes no longer than to load the index."""
GROWTH = 16
"""A file is saved again when it has grown by `MIN_BYTES` and by this part of what was saved: a sixteenth."""
FileId = tuple[int, int]
"""Device and inode of a file."""


class TurnPlace(Struct, array_like=True):
    id: str
    number: int
    begin: int
    """Offset of the first line about the turn."""
    state: DecoderState
    """State of the decoder before that line."""
    end: int = 0
    """Offset after the last line about the turn."""
    items: list[str] = msgspec.field(default_factory=list)
    """Ids of the turn's items, unique in the conversation."""
    implicit: bool = False
    """Whether the file has no line for the beginning of the turn."""
    names: tuple[str, ...] = ()
    """Ids that lines after the first one gave the turn; the last id counts."""
    of_user: bool = False
    """Whether the turn has a message of the user."""
    to_the_end: bool = False
    """Whether the end of the file ends the turn, or an item of it."""


class TurnSnapshot(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The index of a file's turns up to a line."""

    lines: int
    size: int
    """Offset after the last line."""
    state: DecoderState
    places: Sequence[TurnPlace]
    reverted_lines: Sequence[tuple[int, int]]
    """First line of each range of reverted lines, and the line after it."""
    times: Mapping[str, int]
    """How often ids were given, but for those that one item of `places` has."""
    sample: bytes
    """Bytes of the file at its begin and before `size`."""


def may_be_saved(size: int) -> bool:
    """Return whether turns of a file of this size are saved at all."""
    return size >= MIN_BYTES


def is_due(size: int, saved_size: int) -> bool:
    """Return whether the index of `size` bytes is to be saved, if that of `saved_size` bytes was saved last."""
    return size - saved_size >= MIN_BYTES + saved_size // GROWTH
