"""What the lines about turns have in their fields, and ids for what has none there. Pure. Fast to import."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.base import Json

MOST_NUMBER = 2**53
"""Of times and durations; a stored number beyond it, or an infinite one, is none."""

_VARIANTS = {f"{digit:x}": f"{digit & 3 | 8:x}" for digit in range(16)}
"""By the digit that stands there: the first two bits of such an id are 10."""


def times_of(payload: Mapping[str, Json]) -> tuple[int, int]:
    """Start and end in milliseconds; 0 if the line has none."""
    if "started_at_ms" not in payload and "completed_at_ms" not in payload:
        return 0, 0
    return int(number_of(payload, "started_at_ms") or 0), int(number_of(payload, "completed_at_ms") or 0)


def text_of(payload: Mapping[str, Json], name: str) -> str | None:
    value = payload.get(name)
    return value if isinstance(value, str) else None


def number_of(payload: Mapping[str, Json], name: str) -> float | None:
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -MOST_NUMBER <= value <= MOST_NUMBER else None


def derived_id(conversation_id: str, name: str) -> str:
    """The text of `uuid.uuid5(conversation, name)`; written out, since old files need thousands of them at once."""
    hashed = _hashed_space(conversation_id).copy()
    hashed.update(name.encode())
    digits = hashed.hexdigest()
    variant = _VARIANTS[digits[16]]
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


@lru_cache(maxsize=16)
def _hashed_space(conversation_id: str) -> hashlib._Hash:
    try:
        space = uuid.UUID(conversation_id).bytes
    except ValueError:
        space = uuid.uuid5(uuid.NAMESPACE_OID, conversation_id).bytes
    return hashlib.sha1(space, usedforsecurity=False)
