"""Parses the JSON in the events of one answer of a model, leniently, up to a size limit for the whole answer. Pure.

Complete items stay in memory until the answer ends, because only then is it certain that the turn keeps them. So the
memory for an endless answer must be limited.
"""

from __future__ import annotations

import json
import logging

from pydantic_core import from_json

from app_server.engine.model.model_errors import ResponseTooLarge
from app_server_protocol.encoding import Json
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.json_limits import MAX_VALUES, nested_too_deeply, too_many_values

log = logging.getLogger(__name__)


class EventReader:
    """Parses the objects in the events of one answer. Events without an object are skipped. Only the first of these is
    logged, since a server may send millions.
    """

    def __init__(self) -> None:
        self._warned = False

    def read_object(self, data: bytes) -> dict[str, Json] | None:
        """Return the object of an event, or None. Raises ResponseTooLarge for an event with too many values."""
        value = parse_object(data)
        if value is None and too_many_values(data) and _begins_object(data):
            raise ResponseTooLarge(f"an event of more than {MAX_VALUES} values")
        if value is None and not self._warned:
            self._warned = True
            log.warning("skipped an event of %d bytes that is not a JSON object", len(data))
        return value


def parse_object(data: bytes) -> dict[str, Json] | None:
    """Parse the object in `data`; return None if there is none, if it cannot be read, or if it exceeds all limits."""
    if not _begins_object(data) or too_many_values(data):
        return None
    try:
        value = from_json(data)
    except ValueError:
        # The slow parser accepts what the fast one refuses: broken UTF-8 and lone surrogates.
        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        if nested_too_deeply(value):
            return None
    return value if isinstance(value, dict) else None


def _begins_object(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{"


def text_of(value: Json) -> str | None:
    """Return the value if it is a text that is not empty."""
    return value if isinstance(value, str) and value else None


def mapping(value: Json) -> dict[str, Json]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def count(value: Json) -> int | None:
    """Return the value if it is a plausible count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def token_usage(raw: Json, sent: str, answered: str) -> TokenUsage | None:
    """Return the token counts of a provider; None if there are none, or if they are implausible. `sent` and `answered`
    are the provider's names of the two counts.
    """
    usage = mapping(raw)
    into, out = count(usage.get(f"{sent}_tokens")), count(usage.get(f"{answered}_tokens"))
    if into is None or out is None:
        return None
    total = count(usage.get("total_tokens"))
    cached = count(mapping(usage.get(f"{sent}_tokens_details")).get("cached_tokens"))
    thought = count(mapping(usage.get(f"{answered}_tokens_details")).get("reasoning_tokens"))
    return TokenUsage(
        input_tokens=into,
        cached_input_tokens=cached or 0,
        output_tokens=out,
        reasoning_output_tokens=thought or 0,
        total_tokens=into + out if total is None else total,
    )


MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Maximum size of one answer, all its events together, in bytes. A model writes some hundred thousand tokens at most,
with about 300 bytes of stream for each, and its provider repeats the text once or twice.
"""

MAX_ITEMS = 10_000
"""Maximum number of messages, thoughts and calls in one answer. Models make a handful; more than a hundred is unheard
of.
"""

MAX_ITEM_BYTES = 64 * 1024 * 1024
"""Maximum size of all items of one answer, in bytes: as much as one event may hold."""

PIECE_OVERHEAD = 64
"""Overhead of Python for a piece of text that is stored by itself, in bytes."""


class ReplySize:
    """Counts the size of the parts of an answer that stay in memory. Every method raises ResponseTooLarge."""

    __slots__ = ("_bytes", "_items")

    def __init__(self) -> None:
        self._bytes = self._items = 0

    def item(self, size: int) -> None:
        """Count one more item of `size` bytes."""
        self._items += 1
        if self._items > MAX_ITEMS:
            raise ResponseTooLarge(f"more than {MAX_ITEMS} items in one answer")
        self._add(size)

    def piece(self, text: str) -> None:
        """Count a piece of an item that is assembled in this process."""
        self._add(len(text) + PIECE_OVERHEAD)

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_ITEM_BYTES:
            raise ResponseTooLarge(f"items of more than {MAX_ITEM_BYTES >> 20} MiB in one answer")
