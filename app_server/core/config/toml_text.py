"""TOML texts that say other settings than before, and keep comments, order and spacing of all else. Pure.

Import it late: the parser that keeps comments is slow to load, and most servers never edit a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import pairwise

import tomli
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT

from app_server.core.config.edit import SettingEdit, UnsafeEdit, edited, same_settings
from app_server.core.config.key_path import value_at
from app_server.core.errors import InvalidSettings
from protocol.base import Json

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
"""Where a table may begin; a line of a list or text may look so too."""


def edited_text(text: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """Return a text that says `after`, from one that says `before`. Raises UnsafeEdit; the caller checks the result.

    The parser that keeps comments takes a second for 80 kB. Where values of one table change, it gets the text of that.
    """
    changed = [SettingEdit(key, value_at(after, key)) for key in _changed(before, after, ())]
    tables = {edit.key[:-1] for edit in changed}
    if any(_holds_tables(value_at(settings, edit.key)) for settings in (before, after) for edit in changed):
        tables.clear()  # their place is chosen in view of the whole text
    if len(tables) == 1 and (span := _span_of_table(text, tables.pop())) is not None:
        start, end = span
        try:
            known = tomli.loads(text[start:end])
            new = text[:start] + _edited_document(text[start:end], known, edited(known, changed)) + text[end:]
            if same_settings(tomli.loads(new), after):
                return new
        except (UnsafeEdit, InvalidSettings, tomli.TOMLDecodeError, RecursionError):
            pass  # the whole text shows whether it can be edited
    return _edited_document(text, before, after)


def _changed(
    before: Mapping[str, Json], after: Mapping[str, Json], above: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the keys whose values differ."""
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _changed(one, other, (*above, name))
        elif not same_settings(one, other):
            yield (*above, name)


def _holds_tables(value: Json) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(map(_holds_tables, value)))


def _span_of_table(text: str, key: tuple[str, ...]) -> tuple[int, int] | None:
    """Return where the text of a table seems to begin and end.

    Settings outside of tables come first; their text has the header behind it too, from which new ones keep a distance.
    """
    starts = [found.start() for found in _HEADER.finditer(text)]
    if not key:
        return 0, text.find("\n", starts[0]) + 1 or len(text) if starts else len(text)
    for start, end in pairwise((*starts, len(text))):
        header = text[start:end].partition("\n")[0]
        if key[-1] in header and _is_header(header, key):
            return start, end
    return None


def _is_header(line: str, key: tuple[str, ...]) -> bool:
    try:
        return bool(value_at(tomli.loads(line), key) == {})
    except (tomli.TOMLDecodeError, RecursionError):
        return False


def _edited_document(text: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    try:
        document = tomlkit.parse(text)
        _change(document, before, after)
        document = tomlkit.parse(tomlkit.dumps(document))
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
    """A table without a header of its own is gone with its last setting."""
    for name, value in after.items():
        if not isinstance(value, Mapping):
            continue
        if name in document:
            _add_empty_tables(document[name], value)
        else:
            document[name] = _item(value) or tomlkit.table()


def _change_tables(tables: AoT, before: Sequence[Json], after: Sequence[Json]) -> None:
    """Entries that stay keep their text; new ones come behind them."""
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
    """A table that only holds tables needs no header of its own."""
    if not isinstance(value, Mapping) or not value:
        return value
    table = tomlkit.table(is_super_table=all(isinstance(part, Mapping) and part for part in value.values()))
    for name, part in sorted(value.items(), key=lambda entry: isinstance(entry[1], Mapping)):
        table[name] = _item(part)
    return table
