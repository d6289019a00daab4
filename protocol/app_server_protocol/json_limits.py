"""Limits of well-formed JSON: its depth, its number of values, and the id of a message that is refused because of them.

A limit of bytes is not enough. A parser needs up to thirty times their size for input that consists of brackets, and
deeply nested input exhausts the stack of the code that serialises it. The scan for the id uses no recursion, and
inspects a bounded part of the input.
"""

import json
import re
from typing import Any, Final

from msgspec import Struct

Json = Any
"""The same type as in `base`, which is not imported because it imports pydantic."""

MAX_DEPTH: Final = 200
"""Maximum nesting depth of one JSON document. The fast parser has the same limit; no protocol needs more than some
twenty levels. The limit of Python's own decoder differs by version: a thousand, or ten thousand.
"""

MAX_VALUES: Final = 500_000
"""Maximum number of values in one JSON document. The longest model responses, repeated in one event, contain some
hundred thousand commas and brackets, including those in their text. Half a million values take 0.1 s to parse and some
50 MB.
"""

MOST_TOKENS: Final = 500_000
"""Maximum number of strings and brackets that the scan for the id inspects, in a fraction of a second. An id behind
them is not found.
"""

_TOKEN: Final = r'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]++|[\]}]++'
"""A string, terminated or not, or brackets of one direction. Each character is inspected once."""
_COLON: Final = r"[ \t\r]*+:[ \t\r]*+"
_ID: Final = r'(?s)("[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9]{1,20})[ \t\r]*+[,}]'


class MessageOutline(Struct, frozen=True):
    """Content of the outermost object of a line, as far as it was inspected."""

    id: str | int | None
    """Id of the message; None also if there are several, or one of another type."""
    has_method: bool


def read_outline(text: str) -> MessageOutline:
    """Return the outline of one line. Never raises."""
    ids: list[str | int | None] = []
    has_method = False
    depth = 0
    match_colon = re.compile(_COLON).match
    for count, token in enumerate(re.finditer(_TOKEN, text)):
        kind = token[0][0]
        if kind in "[{":
            depth += len(token[0])
        elif kind in "]}":
            depth -= len(token[0])
        elif depth == 1 and (colon := match_colon(text, token.end())):
            if token[0] == '"id"':
                ids.append(_id_at(text, colon.end()))
            has_method |= token[0] == '"method"'
        if (ids and has_method) or count == MOST_TOKENS:
            break
    return MessageOutline(ids[0] if len(ids) == 1 else None, has_method)


def too_many_values(data: bytes) -> bool:
    """Return whether there may be more than MAX_VALUES values. Counts separators, even inside strings, which takes a
    fraction of the time of parsing.
    """
    if len(data) < MAX_VALUES:
        return False
    return data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES


def may_nest_too_deeply(text: str) -> bool:
    """Return whether a JSON text has enough brackets for too many levels, including those inside strings."""
    return text.count("[") + text.count("{") > MAX_DEPTH


def nested_too_deeply(value: Json) -> bool:
    """Return whether code that walks or serialises a decoded value could exhaust the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _id_at(text: str, start: int) -> str | int | None:
    found = re.compile(_ID).match(text, start)
    try:
        value = json.loads(found[1]) if found else None
    except ValueError:
        return None
    return value if isinstance(value, str | int) else None
