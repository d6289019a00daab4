"""Each item of the history as JSON, made once: a long conversation is sent again with every request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from protocol.base import Json
from protocol.responses import ResponseItem


class ItemBytes:
    """Keeps the bytes of the last request's items. Items are immutable, and told apart by identity."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[ResponseItem, bytes]] = {}
        self._form = ""

    def of(
        self, items: Sequence[ResponseItem], form: str, write: Callable[[ResponseItem], bytes]
    ) -> list[bytes]:
        """`write(item)` for each item. `form` names what `write` makes of an item beyond the item itself."""
        if form != self._form:
            self._kept.clear()
            self._form = form
        known, kept, out = self._kept, {}, []
        for item in items:
            key = id(item)
            entry = known.get(key)
            if entry is None:
                entry = (item, write(item))
            kept[key] = entry  # holds the item, so that its id is not given to another one
            out.append(entry[1])
        self._kept = kept
        return out


def json_bytes(value: Json) -> bytes:
    """Compact UTF-8 JSON; text that UTF-8 cannot carry is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
