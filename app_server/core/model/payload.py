"""Parses the JSON of stream events, leniently and with limits."""

from __future__ import annotations

import json
import logging

from pydantic_core import from_json

from app_server.core.bounds import MAX_VALUES, too_many_values
from app_server.core.model.model_errors import ResponseTooLarge
from protocol.base import Json
from protocol.message_outline import nested_too_deeply

log = logging.getLogger(__name__)


class EventReader:
    """The objects in the events of one answer. What holds none is skipped; only the first of those is logged, since a
    server may send millions.
    """

    def __init__(self) -> None:
        self._warned = False

    def read_object(self, data: bytes) -> dict[str, Json] | None:
        """Raises ResponseTooLarge for more than is parsed."""
        if too_many_values(data) and _begins_object(data):
            raise ResponseTooLarge(f"an event of more than {MAX_VALUES} values")
        value = parse_object(data)
        if value is None and not self._warned:
            self._warned = True
            log.warning("skipped an event of %d bytes that is not a JSON object", len(data))
        return value


def parse_object(data: bytes) -> dict[str, Json] | None:
    """The object in `data`; None where there is none that can be read, or one beyond all bounds."""
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
