"""Call ids in the forms that providers accept, each one unique in its history. Pure.

Ids are assigned from the start of the history on, so that a later request begins with the same bytes as the one before
it.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from app_server.engine.config.quirk_settings import ToolIds
from app_server.engine.model.item_cache import LastInput
from app_server_protocol import responses
from app_server_protocol.responses import ResponseItem, call_key, output_key

LONGEST_ID: Final = 64
"""Longest call id that every provider accepts, in characters."""

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class CallIds:
    """Assigns call ids in a provider's form, each one once."""

    def __init__(self, form: ToolIds) -> None:
        self._form = form
        self._given: dict[str, int] = {}

    def of(self, id: str) -> str:
        """Return the id of the next call that was stored under `id`."""
        count = self._given[id] = self._given.get(id, 0) + 1
        unique = id if count == 1 else f"{id}_{count}"
        if self._form == "nine":
            return _hashed(unique, 9)
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", unique) or "call"
        limit = 40 if self._form == "forty" else LONGEST_ID
        return plain if len(plain) <= limit else f"{plain[: limit - 10]}_{_hashed(unique, 9)}"


def _hashed(text: str, length: int) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    letters = []
    for _ in range(length):
        number, rest = divmod(number, 62)
        letters.append(_BASE62[rest])
    return "".join(letters)


class ForeignIds:
    """Rewrites the call ids of a history for an API that knows the calls of its own. Calls of other APIs get ids that
    are unique, in letters and lengths that every provider accepts. An id that the provider gave itself is sent back
    unchanged.
    """

    def __init__(self) -> None:
        self._last = LastInput()
        self._shaped: list[ResponseItem] = []
        self._begin()

    def _begin(self) -> None:
        self._shaped, self._ids = [], CallIds("plain")
        self._waiting: dict[tuple[bool, str], deque[str]] = {}
        """New ids of calls that have no output yet, by the key of their outputs."""

    def of(self, items: Sequence[ResponseItem]) -> Sequence[ResponseItem]:
        """Return the items with the rewritten ids."""
        known = self._last.known(items, None)
        if not known:
            self._begin()
        self._shaped += map(self._shape, items[known:])
        return self._shaped

    def _shape(self, item: ResponseItem) -> ResponseItem:
        if isinstance(item, responses.CallItem):
            key = call_key(item)
            id = self._ids.of(key[1])
            new = key[1] if item.origin is None else id
            self._waiting.setdefault(key, deque()).append(new)
        elif isinstance(item, responses.OutputItem):
            key = output_key(item)
            waiting = self._waiting.get(key)
            new = waiting.popleft() if waiting else item.call_id
        else:
            return item
        return item if new == key[1] else item.model_copy(update={"call_id": new})
