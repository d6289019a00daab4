"""Reads a TOML file into a table, or raises an error with the position of the mistake.

It knows no keys. A missing file is an empty table. The cache key is the content of the file, so the cache is never
stale, and an unchanged file is parsed once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

import tomli

from app_server.core import remedies
from app_server.core.config.key_path import Key, find_keys
from app_server.core.config.safe_file import UnreadableFileError, read_regular_file
from app_server.core.errors import UNREADABLE_CONFIG, ConfigError, FilePosition
from protocol.structs import Json

CONFIG_FILE = "config.toml"

MAX_BYTES = 16 * 1024 * 1024
"""Far above any real settings file; parsing this size takes about a second."""


def read_config_file(home: Path) -> Mapping[str, Json]:
    """Return the user's settings as written. The result is shared: treat it as read-only."""
    path = home / CONFIG_FILE
    return parse_toml(read_config_bytes(path) or b"", path)


def place_in_file(home: Path, key: Key) -> FilePosition | None:
    """Return the position of a key's value in the user's settings. Rereads the file: only errors need this."""
    return places_in_file(home, [key]).get(key)


def places_in_file(home: Path, keys: Collection[Key]) -> dict[Key, FilePosition]:
    """Return the positions of those keys that are in the user's settings."""
    path = home / CONFIG_FILE
    try:
        found = find_keys((read_config_bytes(path) or b"").decode("utf-8-sig"), keys)
    except (ConfigError, ValueError):
        return {}  # the file has changed since it was read
    return {key: FilePosition(str(path), *place) for key, place in found.items()}


def read_config_bytes(path: Path) -> bytes | None:
    try:
        return read_regular_file(path, MAX_BYTES)
    except UnreadableFileError as problem:
        if any(os.path.exists(folder) and not os.path.isdir(folder) for folder in path.parents):
            unwritable = remedies.home_unwritable(str(path.parent), "it is not a folder")
            raise ConfigError(f"{UNREADABLE_CONFIG}{unwritable}") from problem
        raise ConfigError(f"{UNREADABLE_CONFIG}{path} cannot be read: {problem}") from problem


def parse_toml(data: bytes, path: Path) -> Mapping[str, Json]:
    """Parse the content of `path`; errors name it with line and column."""
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
    return tomli.loads(data.decode("utf-8-sig"))


def _position(data: bytes, offset: int) -> tuple[int, int]:
    before = data[:offset]
    return before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1


def _error(path: Path, line: int | None, column: int | None, problem: str) -> ConfigError:
    place = None if line is None or column is None else FilePosition(str(path), line, column)
    return ConfigError(f"{UNREADABLE_CONFIG}{place or path}: {problem}", place)
