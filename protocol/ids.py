"""Identifiers. Where the bits come from (clock, random) is the caller's business."""

import re
from typing import NewType

ConversationId = NewType("ConversationId", str)

_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def uuid_text(version: int, fill: bytes) -> str:
    """A UUID of that version in its usual spelling, made of 16 given bytes."""
    if len(fill) != 16:
        raise ValueError("a UUID needs 16 bytes")
    bits = bytearray(fill)
    bits[6] = (bits[6] & 0x0F) | (version << 4)
    bits[8] = (bits[8] & 0x3F) | 0x80
    return hyphenated(bits.hex())


def new_conversation_id(clock_ms: int, random: bytes) -> ConversationId:
    """A UUIDv7: 48 bits of milliseconds, so that ids sort by birth, then at least 10 random bytes."""
    if len(random) < 10:
        raise ValueError("a conversation id needs 10 random bytes")
    return ConversationId(uuid_text(7, (clock_ms % (1 << 48)).to_bytes(6, "big") + random[:10]))


def hyphenated(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def parse_conversation_id(text: str) -> ConversationId | None:
    """The id in its usual spelling, or None if `text` is no UUID."""
    if not _UUID.fullmatch(text):
        return None
    return ConversationId(hyphenated(text.replace("-", "").lower()))
