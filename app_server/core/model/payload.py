"""The JSON of a frame, read fast and read whatever it takes."""

from __future__ import annotations

import json
import logging

from pydantic_core import from_json

from protocol.base import Json

log = logging.getLogger(__name__)


def parse_object(data: bytes) -> dict[str, Json] | None:
    """The object in `data`; None, with a warning, when there is none."""
    try:
        value = from_json(data)
    except ValueError:
        # The slow way takes what the fast one refuses: broken UTF-8, lone surrogates, deep nesting.
        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, dict):
        return value
    log.warning("skipped an event of %d bytes that is not a JSON object", len(data))
    return None


def text_of(value: Json) -> str | None:
    """`value` if it is text with something in it."""
    return value if isinstance(value, str) and value else None


def mapping(value: Json) -> dict[str, Json]:
    """`value` if it is an object, an empty one otherwise."""
    return value if isinstance(value, dict) else {}


def count(value: Json) -> int | None:
    """`value` if it is a plausible number of something."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
