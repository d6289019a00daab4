"""Reads tables of settings by the table of all settings: checks every value, and warns of unknown keys. Pure.

A wrong value is an error that names the key. An unknown key is a warning that names the most similar known key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from app_server.engine.config.config_values import SettingsWarning
from app_server.engine.config.setting_types import (
    Setting,
    SettingsPart,
    WrongValue,
    is_placeholder,
    quote,
    shortened,
    type_name,
)
from app_server.engine.config.settings_table import every_setting
from app_server.engine.support import similar_words
from app_server.engine.support.engine_errors import ConfigError, FilePosition
from app_server_protocol.encoding import Json

T = TypeVar("T")


class SettingError(ConfigError):
    """An invalid setting, with its key. `rest` is the usable part of its value; None if there is none."""

    def __init__(
        self,
        problem: str,
        key: tuple[str, ...],
        place: FilePosition | None = None,
        rest: Json = None,
    ) -> None:
        super().__init__(f"error deriving config: {f'{place}: ' if place else ''}{problem}", place)
        self.problem, self.key, self.rest = problem, key, rest


def derive_error(problem: str, *key: str) -> SettingError:
    """Return the error to raise for a problem. `key` is the invalid key, if the problem is about a single key."""
    return SettingError(problem, key)


class Node:
    """A node in the tree of known keys: a setting, a table, or a key that may be either."""

    __slots__ = ("below", "part", "setting")

    def __init__(self) -> None:
        self.setting: Setting | None = None
        self.part: SettingsPart | None = None
        self.below: dict[str, Node] = {}

    def at(self, name: str) -> Node | None:
        """Return the node of a key; None if it is unknown. All names that users choose share one node."""
        return self.below.get(name) or next(
            (node for known, node in self.below.items() if is_placeholder(known)), None
        )


@cache
def known_settings() -> Node:
    """Return the tree of all settings."""
    root = Node()
    for key, setting, part in every_setting():
        node = root
        for name in key.split("."):
            node = node.below.setdefault(name, Node())
        node.setting, node.part = setting, part
    return root


class SettingsTable:
    """One checked table of the settings. Creating it raises SettingError for the first value that is wrong."""

    __slots__ = ("_known", "_path", "_unknown", "_values", "tables")

    def __init__(
        self, raw: Mapping[str, Json], path: tuple[str, ...] = (), known: Node | None = None
    ) -> None:
        self._known = known or known_settings()
        self._path = path
        self._values: dict[str, Any] = {}
        self.tables: dict[str, SettingsTable] = {}
        """Tables within this one, by name."""
        self._unknown: list[str] = []
        for name, value in raw.items():
            node = self._known.at(name)
            if node is None:
                self._unknown.append(name)
            elif value is not None:
                self._read(name, value, node)

    def _read(self, name: str, value: Json, node: Node) -> None:
        setting = node.setting
        if node.below and (setting is None or isinstance(value, Mapping)):
            self.tables[name] = SettingsTable(self._mapping(name, value), (*self._path, name), node)
        elif setting is not None:
            try:
                self._values[name] = setting.kind.check(value)
            except WrongValue as problem:
                raise self.invalid(name, str(problem), problem.rest) from None

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> Any:
        """Return the value of a setting in this table, or its default."""
        if key in self._values:
            return self._values[key]
        node = self._known.below[key]
        return None if node.setting is None else node.setting.default

    def table(self, name: str) -> SettingsTable:
        """Return a table within this one, which is empty if nothing is set."""
        return self.tables.get(name) or SettingsTable({}, (*self._path, name), self._known.at(name))

    def build(self, kind: type[T], **more: object) -> T:
        """Return an object with the settings of this table that are fields of its class. Other fields keep their
        defaults.
        """
        return kind(**{**self.fields(kind), **more})

    @property
    def values(self) -> Mapping[str, Any]:
        """The settings of this table by their keys."""
        return self._values

    def fields(self, kind: type, *, partial: bool = False) -> dict[str, Any]:
        """Return the fields of a class that this table sets. Raises SettingError if a required one is missing, unless
        the table is `partial`, because it changes only some fields.
        """
        for name, setting in self._of(kind):
            if setting.required and name not in self._values and not partial:
                raise self.invalid(name, "is missing")
        return {
            setting.to or name: self._values[name] for name, setting in self._of(kind) if name in self._values
        }

    def given(self, kind: type) -> list[str]:
        """Return the keys of this table that are set and belong to a class."""
        return [name for name, _ in self._of(kind) if name in self._values]

    def _of(self, kind: type) -> Iterator[tuple[str, Setting]]:
        for name, node in self._known.below.items():
            if node.setting and node.part and node.part.of is kind and node.setting.to is not None:
                yield name, node.setting

    def profiles(self) -> Mapping[str, SettingsTable]:
        """Return the tables of `[profiles]`, which may have the same settings as the top of the file."""
        raw = self._mapping("profiles", self.get("profiles") or {})
        tables = SettingsTable({}, ("profiles",))
        return {
            name: SettingsTable(tables._mapping(name, profile), ("profiles", name))
            for name, profile in raw.items()
        }

    def _mapping(self, name: str, value: Json) -> Mapping[str, Json]:
        if not isinstance(value, Mapping):
            raise self.invalid(name, f"must be a table, not {type_name(value)}")
        return value

    def path(self) -> str:
        """Return the name of this table for messages."""
        return ".".join(map(_part, self._path))

    def wrong(self, problem: str) -> SettingError:
        """Return the error to raise for this table as a whole."""
        return derive_error(f"`{self.path()}` {problem}", *self._path)

    def invalid(self, key: str, problem: str, rest: Json = None) -> SettingError:
        """Return the error to raise for an invalid value of `key`. `rest` is the usable part of the value; None if
        there is none.
        """
        name = ".".join(map(_part, (*self._path, key)))
        return SettingError(f"`{name}` {problem}", (*self._path, key), rest=rest)

    def unknown_keys(self) -> Iterator[SettingsWarning]:
        """Yield a warning for each unknown key."""
        for key in self._unknown:
            similar = did_you_mean(key, set(self._known.below))
            name = ".".join(map(_part, (*self._path, key)))
            yield SettingsWarning(f"unknown setting `{name}` is ignored{similar}", (*self._path, key))
        for table in self.tables.values():
            yield from table.unknown_keys()


def did_you_mean(name: str, known: set[str]) -> str:
    """Return `; did you mean …?` if a known name is similar, else an empty text."""
    meant = similar_words.similar(name[:100], sorted(known))
    return "" if meant is None else f"; did you mean `{meant}`?"


def plain_name(name: str) -> str:
    """Return a name that a user chose: unchanged if it is short and printable, else shortened or quoted."""
    return shortened(name) if name.isprintable() else quote(name)[1:-1]


def _part(part: str) -> str:
    bare = part.isascii() and part.replace("_", "").replace("-", "").isalnum()
    return part if bare and len(part) <= 60 else quote(part)
