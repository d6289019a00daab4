"""Dotted keys of settings, as `-c` and clients write them: `a.b."c.d"`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tomli

if TYPE_CHECKING:
    from protocol.base import Json

MAX_DEPTH = 32
"""No setting is nested nearly as deeply; deeper keys are mistakes or attacks."""


def split_key(key: str) -> list[str]:
    """The parts of a dotted key; quoted ones may contain dots, as in TOML. A key that cannot be split has none."""
    return _quoted_parts(key) if '"' in key or "'" in key else key.split(".")


def is_key(parts: Sequence[str]) -> bool:
    """Whether a setting can have this key."""
    return bool(parts) and all(parts) and len(parts) <= MAX_DEPTH


def value_at(table: Json, key: Sequence[str]) -> Json:
    """None where nothing is set."""
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
