"""Edits TOML texts: changes some settings, and keeps comments, order and spacing of everything else. Pure.

Import it late: the parser that preserves comments is slow to load, and most servers never edit a file.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import tomli
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from app_server.engine.config.effective import UnsafeEdit, same_settings
from app_server_protocol.encoding import Json


def edited_text(text: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """Return a text with the settings `after`, made from a text with the settings `before`. Raises UnsafeEdit. The
    caller checks the result.
    """
    try:
        document = tomlkit.parse(text)
        _change(document, before, after)
        new = tomlkit.dumps(document)
        if same_settings(tomli.loads(new), after):
            return new
        document = tomlkit.parse(new)
        _add_empty_tables(document, after)
        return tomlkit.dumps(document)
    except (
        TOMLKitError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
    ) as error:
        raise UnsafeEdit from error


def _change(
    document: MutableMapping[str, Json], before: Mapping[str, Json], after: Mapping[str, Json]
) -> None:
    for name in before:
        if name not in after:
            del document[name]
    for name, value in after.items():
        present: Json = before.get(name)
        if name in before and same_settings(present, value):
            continue
        if isinstance(value, Mapping) and isinstance(present, Mapping):
            _change(document[name], present, value)
        elif value and isinstance(value, list) and isinstance(document.get(name), AoT):
            _change_tables(document[name], present, value)
        else:
            document[name] = _item(value)


def _add_empty_tables(document: MutableMapping[str, Json], after: Mapping[str, Json]) -> None:
    """Add empty tables that disappeared with their last setting, because they had no header of their own."""
    for name, value in after.items():
        if not isinstance(value, Mapping):
            continue
        if name in document:
            _add_empty_tables(document[name], value)
        else:
            document[name] = _item(value) or tomlkit.table()


def _change_tables(tables: AoT, before: Sequence[Json], after: Sequence[Json]) -> None:
    """Change the entries of a list of tables: entries that stay keep their text, and new ones are appended."""
    kept = 0
    for n, entry in enumerate(before):
        stays = kept < len(after) and same_settings(entry, after[kept])
        if stays:
            kept += 1
        else:
            del tables[n - len(before) + len(tables)]
    for entry in after[kept:]:
        tables.append(_item(entry))


def _item(value: Json) -> Json:
    """Return a value to insert. A table that contains only tables needs no header of its own."""
    if not isinstance(value, Mapping) or not value:
        return value
    table = tomlkit.table(is_super_table=all(isinstance(part, Mapping) and part for part in value.values()))
    for name, part in sorted(value.items(), key=lambda entry: isinstance(entry[1], Mapping)):
        table[name] = _item(part)
    return table
