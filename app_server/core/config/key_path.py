"""Keys of settings: dotted, as `-c` and clients write them (`a.b."c.d"`), and their position in a TOML text. Pure.

Positions are for error messages: the parsers in use do not report those of values. They are only asked for in text that
a parser has accepted, so a few kinds of tokens are enough.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import tomli

from protocol.structs import Json

MAX_DEPTH = 32
"""No setting is nested nearly as deeply; deeper keys are mistakes or attacks."""


def split_key(key: str) -> list[str]:
    """Split a dotted key; quoted parts may contain dots, as in TOML. What cannot be split has no parts."""
    return _quoted_parts(key) if '"' in key or "'" in key else key.split(".")


def is_key(parts: Sequence[str]) -> bool:
    """Return whether a setting can have this key."""
    return bool(parts) and all(parts) and len(parts) <= MAX_DEPTH


def value_at(table: Json, key: Sequence[str]) -> Json:
    """Return the value of a key; None where nothing is set."""
    for part in key:
        if not isinstance(table, dict) or part not in table:
            return None
        table = table[part]
    return table


def _quoted_parts(key: str) -> list[str]:
    try:
        table: Json = tomli.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return []
    parts: list[str] = []
    while isinstance(table, dict):
        if len(table) != 1:
            return []
        ((part, table),) = table.items()
        parts.append(part)
    return parts


Key = tuple[str, ...]

MAX_CHARACTERS = 1 << 20
"""Longer files are not searched: a settings file that people read is far shorter."""

TOKEN = (
    r'(?P<text>"""(?:\\[\s\S]|[^\\])*?"{3,5}|\'\'\'[\s\S]*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<skip>#[^\n]*|[ \t\r]+)"
    r"|(?P<mark>[\[\]{},=\n])"
    r"|(?P<bare>[^\s\[\]{},=#\"']+)"
)


def find_keys(text: str, keys: Collection[Key]) -> dict[Key, tuple[int, int]]:
    """Return line and column of several keys, found in one pass; those that are not found are left out."""
    places: dict[Key, tuple[int, int]] = {}
    if len(text) > MAX_CHARACTERS:
        return places
    for found, offset in _keys(text):
        for key in keys:
            if key not in places and found[: len(key)] == key:
                places[key] = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
        if len(places) == len(keys):
            break
    return places


def _keys(text: str) -> Iterator[tuple[Key, int]]:
    """Yield every key with the parts of its table, in the order of the text, and its offset."""
    table: Key = ()
    """The table of the last header."""
    current: Key = ()
    """The key of the current assignment."""
    enclosing: list[tuple[str, Key]] = []
    """Open lists and inline tables: the opening bracket, and the key that they belong to."""
    parts: list[str] = []
    begins, reads_key, in_header = 0, True, False
    for token in re.finditer(TOKEN, text):
        kind, word = token.lastgroup, token[0]
        if kind == "skip" or (kind != "mark" and not reads_key):
            continue
        if kind != "mark":
            begins = begins if parts else token.start()
            parts += _parts(word, quoted=kind == "text")
        elif in_header:
            if word == "]" and parts:
                table, parts = tuple(parts), []
                yield table, begins
            in_header = word != "\n"
        elif word == "=":
            current = (*(enclosing[-1][1] if enclosing else table), *parts)
            parts, reads_key = [], False
            yield current, begins
        elif word == "[" and reads_key:
            in_header = True
        elif word in "[{":
            in_list = enclosing and enclosing[-1][0] == "["
            enclosing.append((word, enclosing[-1][1] if in_list else current))
            reads_key = word == "{"
        elif word in "]}":
            enclosing.pop()
            reads_key = False
        else:
            # After a line end or a comma, a key follows, except in lists.
            reads_key = not (enclosing and enclosing[-1][0] == "[")


def _parts(word: str, *, quoted: bool) -> list[str]:
    return [tomli.loads(f"part = {word}")["part"]] if quoted else [part for part in word.split(".") if part]
