"""What is read of one answer of a model: the JSON of its events, leniently, and no more than a limit of all of it.
Pure.

Complete items stay in memory until the answer ends, because only then is it certain that the turn keeps them. So the
memory for an endless answer must be limited.
"""

from __future__ import annotations

import json
import logging

from pydantic_core import from_json

from app_server.core.model.model_errors import ResponseTooLarge
from app_server_protocol.events.turn import TokenUsage
from app_server_protocol.json_limits import MAX_VALUES, nested_too_deeply, too_many_values
from app_server_protocol.structs import Json

log = logging.getLogger(__name__)


class EventReader:
    """The objects in the events of one answer. What holds none is skipped; only the first of those is logged, since a
    server may send millions.
    """

    def __init__(self) -> None:
        self._warned = False

    def read_object(self, data: bytes) -> dict[str, Json] | None:
        """Raises ResponseTooLarge for more than is parsed."""
        value = parse_object(data)
        if value is None and too_many_values(data) and _begins_object(data):
            raise ResponseTooLarge(f"an event of more than {MAX_VALUES} values")
        if value is None and not self._warned:
            self._warned = True
            log.warning("skipped an event of %d bytes that is not a JSON object", len(data))
        return value


def parse_object(data: bytes) -> dict[str, Json] | None:
    """Parse the object in `data`; None where there is none that can be read, or one beyond all bounds."""
    if not _begins_object(data) or too_many_values(data):
        return None
    try:
        value = from_json(data)
    except ValueError:
        # The slow way takes what the fast one refuses: broken UTF-8 and lone surrogates.
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
    """`value` if it is text with something in it."""
    return value if isinstance(value, str) and value else None


def mapping(value: Json) -> dict[str, Json]:
    """`value` if it is an object, an empty one otherwise."""
    return value if isinstance(value, dict) else {}


def count(value: Json) -> int | None:
    """`value` if it is a plausible number of something."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def token_usage(raw: Json, sent: str, answered: str) -> TokenUsage | None:
    """Return the tokens that a provider counted, under its names for what was sent and answered; None where there are
    none, or none that make sense.
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
"""Of one answer, all its events together. A model writes some hundred thousand tokens at most, with about 300 bytes of
stream for each, and its provider repeats the text once or twice.
"""

MAX_ITEMS = 10_000
"""Messages, thoughts and calls of one answer. Models make a handful; more than a hundred is unheard of."""

MAX_ITEM_BYTES = 64 * 1024 * 1024
"""Of all items of one answer: as much as one event may hold."""

PIECE_OVERHEAD = 64
"""What Python adds to a piece of text that is kept by itself."""


class ReplySize:
    """Counts what of an answer is kept. Every method raises ResponseTooLarge."""

    __slots__ = ("_bytes", "_items")

    def __init__(self) -> None:
        self._bytes = self._items = 0

    def item(self, size: int) -> None:
        """Count one more item, of so many bytes."""
        self._items += 1
        if self._items > MAX_ITEMS:
            raise ResponseTooLarge(f"more than {MAX_ITEMS} items in one answer")
        self._add(size)

    def piece(self, text: str) -> None:
        """Count a piece of an item that is put together here."""
        self._add(len(text) + PIECE_OVERHEAD)

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_ITEM_BYTES:
            raise ResponseTooLarge(f"items of more than {MAX_ITEM_BYTES >> 20} MiB in one answer")
