"""Reads a TOML file into a table, or raises an error with the position of the mistake.

It does not know any keys. A missing file is an empty table. The cache key is the content of the file, so the cache is
never stale, and an unchanged file is parsed once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import tomli

from app_server.engine.config.safe_file import UnreadableFileError, read_regular_file
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import UNREADABLE_CONFIG, ConfigError, FilePosition
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server_protocol.encoding import Json

CONFIG_FILE = "config.toml"

Key = tuple[str, ...]

MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of a settings file, in bytes. It is far above any real file; parsing this size takes about a second."""


def read_config_file(home: Path) -> Mapping[str, Json]:
    """Return the user's settings as written. The result is shared: treat it as read-only."""
    path = home / CONFIG_FILE
    return parse_toml(read_config_bytes(path) or b"", path)


def places_in_file(
    home: Path, keys: Collection[Key], content: bytes | None = None
) -> dict[Key, FilePosition]:
    """Return the positions of those keys that are in the user's file. The file is read again, unless its `content` is
    given.
    """
    path = home / CONFIG_FILE
    try:
        data = read_config_bytes(path) if content is None else content
        found = find_keys(text_of_bytes(data or b""), keys)
    except (ConfigError, ValueError):
        return {}  # the file has changed since it was read
    return {key: FilePosition(str(path), *place) for key, place in found.items()}


def read_config_bytes(path: Path) -> bytes | None:
    try:
        return read_regular_file(path, MAX_BYTES)
    except UnreadableFileError as problem:
        if any(os.path.exists(folder) and not os.path.isdir(folder) for folder in path.parents):
            unwritable = user_messages.home_unwritable(str(path.parent), "it is not a folder")
            raise ConfigError(f"{UNREADABLE_CONFIG}{unwritable}") from problem
        raise ConfigError(f"{UNREADABLE_CONFIG}{path} cannot be read: {problem}") from problem


def parse_toml(data: bytes, path: Path) -> Mapping[str, Json]:
    """Parse the content of `path`. Errors name the path with line and column."""
    try:
        return _parse(data)
    except UnicodeDecodeError as error:
        line, column = _position(data, error.start)
        raise _error(path, line, column, "the text is not valid UTF-8") from error
    except tomli.TOMLDecodeError as error:
        raise _error(path, error.lineno, error.colno, error.msg[:1].lower() + error.msg[1:]) from error
    except RecursionError as error:
        raise _error(path, None, None, "arrays or tables are nested too deeply") from error
    except (ValueError, OverflowError) as error:
        # The parser passes a few oversized numbers and dates to Python's constructors, which raise.
        raise _error(path, None, None, "a number or date is out of range") from error


@lru_cache(maxsize=2)
def _parse(data: bytes) -> Mapping[str, Json]:
    return tomli.loads(text_of_bytes(data))


def _position(data: bytes, offset: int) -> tuple[int, int]:
    before = data[:offset]
    return before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1


def _error(path: Path, line: int | None, column: int | None, problem: str) -> ConfigError:
    place = None if line is None or column is None else FilePosition(str(path), line, column)
    return ConfigError(f"{UNREADABLE_CONFIG}{place or path}: {problem}", place)


MAX_CHARACTERS = 1 << 20
"""Maximum length of a text that is searched for keys. A settings file that people read is far shorter."""

TOKEN = (
    r'(?P<text>"""(?:\\[\s\S]|[^\\])*?"{3,5}|\'\'\'[\s\S]*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<skip>#[^\n]*|[ \t\r]+)"
    r"|(?P<mark>[\[\]{},=\n])"
    r"|(?P<bare>[^\s\[\]{},=#\"']+)"
)


def find_keys(text: str, keys: Collection[Key]) -> dict[Key, tuple[int, int]]:
    """Return the line and column of each key, found in one pass. Keys that are not found are left out."""
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
    """Yield every key with the parts of its table, and its offset, in the order of the text."""
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
