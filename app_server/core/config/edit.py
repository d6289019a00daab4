"""Edits config.toml and preserves comments, order, spacing and file mode.

Steps: read, edit the parsed document, check that the new text parses to exactly the intended settings, replace the file
atomically.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from app_server.core.config.safe_file import write_file_atomically
from app_server.core.config.toml_file import CONFIG_FILE, parse_toml, read_config_bytes
from app_server.core.errors import ConfigError
from protocol.base import Json
from protocol.policy import ReasoningEffort

NEW_FILE_MODE = 0o600

MAX_EDITED_BYTES = 1024 * 1024
"""The parser that preserves comments is slow: this size takes seconds."""


def set_default_model(home: Path, model: str | None, effort: ReasoningEffort | None) -> None:
    """Write the model and effort that new conversations start with; None removes the setting.

    They go into the profile that the file selects, else to the top level. If it raises ConfigError, the file is
    unchanged.
    """
    path = _real_file(home / CONFIG_FILE)
    data = read_config_bytes(path) or b""
    if len(data) > MAX_EDITED_BYTES:
        raise _cannot_change(path, "it is too large to edit")
    before = parse_toml(data, path)
    profile = before.get("profile")
    place = ("profiles", profile) if isinstance(profile, str) and profile else ()
    changes = {"model": model, "model_reasoning_effort": None if effort is None else str(effort)}
    text = _edited(data.decode("utf-8-sig"), place, changes, path)
    after = parse_toml(text.encode(), path)
    if _canonical(after) != _canonical(_expected(before, place, changes)):
        raise _cannot_change(path, "its form does not allow a safe edit; change `model` by hand")
    if _canonical(after) != _canonical(before):
        _replace(path, text.encode())


def _real_file(path: Path) -> Path:
    """The target of a link at `path`, so that the edit keeps the link."""
    if not path.is_symlink():
        return path
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise _cannot_change(path, "it is a link to a file that does not exist") from error


def _edited(text: str, place: tuple[str, ...], changes: Mapping[str, str | None], path: Path) -> str:
    import tomlkit  # noqa: PLC0415 - slow to import, and most servers never edit a file
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document = tomlkit.parse(text)
        table: MutableMapping[str, Json] = document
        for name in place:
            if name not in table:
                if not any(changes.values()):
                    return text
                table[name] = tomlkit.table(is_super_table=name == "profiles")
            table = table[name]
            if not isinstance(table, MutableMapping):
                raise _cannot_change(path, f"`{name}` is not a table")
        for key, value in changes.items():
            if value is not None:
                table[key] = value
            elif key in table:
                del table[key]
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _cannot_change(path, "its form does not allow a safe edit; change `model` by hand") from error


def _expected(
    before: Mapping[str, Json], place: tuple[str, ...], changes: Mapping[str, str | None]
) -> Mapping[str, Json]:
    """The settings that the file must have after the edit, computed on plain tables."""
    if place and (place[0] in before or any(changes.values())):
        inner = before.get(place[0], {})
        return {**before, place[0]: _expected(inner, place[1:], changes)}
    if place:
        return before
    kept = {key: value for key, value in before.items() if key not in changes}
    return kept | {key: value for key, value in changes.items() if value is not None}


def _canonical(table: Mapping[str, Json]) -> str:
    """A text that is equal for equal settings, even if they contain a NaN."""
    return json.dumps(table, default=repr, sort_keys=True)


def _replace(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            mode = NEW_FILE_MODE
        write_file_atomically(path, data, mode)
    except OSError as error:
        raise _cannot_change(path, (error.strerror or "it cannot be written").lower()) from error


def _cannot_change(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"failed to change {path}: {reason}")
