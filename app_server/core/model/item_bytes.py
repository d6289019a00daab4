"""A request's items and what stands around them as JSON, made once: nearly all of it is sent again with the next."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import is_not

from protocol.base import Json
from protocol.responses import ResponseItem


class ItemBytes:
    """Keeps the bytes of the last request. Items are immutable, and told apart by identity."""

    def __init__(self) -> None:
        self._what: tuple[object, ...] = ()
        self._around = (b"", b"")
        self._kept: dict[int, tuple[ResponseItem, bytes]] = {}
        self._form = ""
        self._items: list[ResponseItem] = []
        self._bytes: list[bytes] = []
        """Of the last request."""

    def of(
        self, items: Sequence[ResponseItem], form: str, write: Callable[[ResponseItem], bytes]
    ) -> list[bytes]:
        """`write(item)` for each item. `form` names what `write` makes of an item beyond the item itself."""
        if form != self._form:
            self._kept, self._items, self._bytes = {}, [], []
            self._form = form
        known = len(self._items)
        if any(map(is_not, self._items, items)) or len(items) < known:
            return self._again(items, write)
        # Most requests are the last one and a little more.
        for item in items[known:]:
            data = write(item)
            self._kept[id(item)] = (item, data)
            self._items.append(item)
            self._bytes.append(data)
        return self._bytes.copy()

    def around(self, *what: object, write: Callable[[], tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        """`write()`: what comes before the items and after them. `what` is all that it depends on, told apart by
        identity, too: what is equal here need not be the same in JSON, as 1 and true.
        """
        if len(what) != len(self._what) or any(map(is_not, what, self._what)):
            self._what, self._around = what, write()
        return self._around

    def _again(self, items: Sequence[ResponseItem], write: Callable[[ResponseItem], bytes]) -> list[bytes]:
        kept: dict[int, tuple[ResponseItem, bytes]] = {}
        for item in items:
            entry = self._kept.get(id(item))
            # Holds the item, so that its id is not given to another one.
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
