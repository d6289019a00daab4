"""Caches the JSON of a request's items and of its other fields: the next request repeats nearly all of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from operator import is_not

from protocol.base import Json
from protocol.responses import ResponseItem


class ItemBytes:
    """The cache of the last request. Items are immutable, and compared by identity."""

    def __init__(self) -> None:
        self._what: tuple[object, ...] = ()
        self._envelope = (b"", b"")
        self._kept: dict[int, tuple[ResponseItem, bytes]] = {}
        self._form: Hashable = None
        self._items: list[ResponseItem] = []
        self._bytes: list[bytes] = []
        """Of the last request."""

    def of(
        self, items: Sequence[ResponseItem], form: Hashable, write: Callable[[ResponseItem], bytes]
    ) -> list[bytes]:
        """`write(item)` for each item. `form` has all values that the result depends on besides the item."""
        if form != self._form:
            self._kept, self._items, self._bytes = {}, [], []
            self._form = form
        known = len(self._items)
        if any(map(is_not, self._items, items)) or len(items) < known:
            return self._rebuild(items, write)
        # Most requests are the last one and a little more.
        for item in items[known:]:
            data = write(item)
            self._kept[id(item)] = (item, data)
            self._items.append(item)
            self._bytes.append(data)
        return self._bytes.copy()

    def envelope(
        self, what: tuple[object, ...], write: Callable[[], tuple[bytes, bytes]]
    ) -> tuple[bytes, bytes]:
        """The result of `write()`: the JSON before the items and after them. `what` has all values that it depends on,
        compared by identity, too: equal values may differ in JSON, such as 1 and true.
        """
        if len(what) != len(self._what) or any(map(is_not, what, self._what)):
            self._what, self._envelope = what, write()
        return self._envelope

    def _rebuild(self, items: Sequence[ResponseItem], write: Callable[[ResponseItem], bytes]) -> list[bytes]:
        kept: dict[int, tuple[ResponseItem, bytes]] = {}
        for item in items:
            entry = self._kept.get(id(item))
            # The reference to the item prevents the reuse of its id.
            kept[id(item)] = entry if entry is not None else (item, write(item))
        self._kept, self._items = kept, list(items)
        self._bytes = [kept[id(item)][1] for item in items]
        return self._bytes.copy()


def json_bytes(value: Json) -> bytes:
    """Compact UTF-8 JSON; text that UTF-8 cannot carry is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
