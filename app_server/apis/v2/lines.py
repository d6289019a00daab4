"""Notifications of one thread as lines, each with the time when it was made."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from json.encoder import encode_basestring, encode_basestring_ascii

from protocol.structs import Written
from protocol.table import AnyServerNotification


class NotificationLines:
    """Collects what one event becomes; what the client opted out of is left out. `now` gives seconds since 1970."""

    def __init__(self, thread_id: str, now: Callable[[], float], opted_out: Collection[str]) -> None:
        self._thread, self._now, self._opted_out = json.dumps(thread_id), now, frozenset(opted_out)
        self._lines: list[bytes] = []

    def now_ms(self) -> int:
        return int(self._now() * 1000)

    def take(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def add(self, row: AnyServerNotification, params: Written) -> None:
        if row.method not in self._opted_out:
            self.add_raw(row.method, params.to_json())

    def add_raw(self, method: str, params: bytes) -> None:
        if method not in self._opted_out:
            head = f'{{"method":{json.dumps(method)},"params":'.encode()
            self._lines.append(head + params + self._stamp())

    def delta_head(self, method: str, turn_id: str, item_id: str) -> bytes:
        """All that is the same for every delta of one kind and item."""
        place = f'{{"threadId":{self._thread},"turnId":{json.dumps(turn_id)},"itemId":{json.dumps(item_id)}'
        return f'{{"method":{json.dumps(method)},"params":{place},"delta":'.encode()

    def add_delta(self, method: str, head: bytes, text: str, more: bytes = b"") -> None:
        """`more`: fields behind the text."""
        if method not in self._opted_out:
            self._lines.append(head + _quoted(text) + more + b"}" + self._stamp())

    def _stamp(self) -> bytes:
        return b',"emittedAtMs":%d}' % self.now_ms()


def _quoted(text: str) -> bytes:
    try:
        return encode_basestring(text).encode()
    except UnicodeEncodeError:
        return encode_basestring_ascii(text).encode()
