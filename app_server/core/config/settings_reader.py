"""Typed access to a merged table: every accessor checks one key; a key without an accessor call is unknown.

So the code that reads the settings is also the list of settings. A wrong type is an error that names the key; an
unknown key is a warning that names the most similar known one. Messages quote a value only if it should be one of a
few words, because other values may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from app_server.core.config.types import SettingsWarning
from app_server.core.errors import ConfigError, FilePosition
from app_server.core.lazy import Lazy

if TYPE_CHECKING:
    from protocol.base import Json

Choice = TypeVar("Choice", bound=StrEnum)

MAX_INTEGER = 2**63 - 1


class SettingError(ConfigError):
    """An invalid setting, and its key."""

    def __init__(self, problem: str, key: tuple[str, ...], place: FilePosition | None = None) -> None:
        super().__init__(f"error deriving config: {f'{place}: ' if place else ''}{problem}", place)
        self.problem, self.key = problem, key


def derive_error(problem: str, *key: str) -> SettingError:
    """`key` is the invalid one, if a single key is."""
    return SettingError(problem, key)


class SettingsReader:
    """Reads one table and records which keys are known."""

    __slots__ = ("_children", "_known", "_path", "_raw")

    def __init__(self, raw: Mapping[str, Json], path: tuple[str, ...] = ()) -> None:
        self._raw = raw
        self._path = path
        self._known: set[str] = set()
        self._children: list[SettingsReader] = []

    def has(self, key: str) -> bool:
        """Whether the key has a value; marks the key as known."""
        return self._value(key) is not None

    def ignore(self, *keys: str) -> None:
        """Marks these keys as known; their values are not used."""
        self._known.update(keys)

    def text(self, key: str) -> str | None:
        value = self._value(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, "a string", value)

    def word(self, key: str, most: int) -> str | None:
        """A text of one to `most` characters."""
        value = self.text(key)
        if value is not None and not 1 <= len(value) <= most:
            raise self.invalid(key, f"must have 1 to {most} characters")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._value(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(key, "true or false", value)

    def integer(self, key: str, minimum: int = 0) -> int | None:
        value = self._value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "an integer", value)
        if not minimum <= value <= MAX_INTEGER:
            raise self.invalid(key, f"must be at least {minimum} and fit into 64 bits")
        return value

    def seconds(self, key: str) -> float | None:
        value = self._value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number of seconds", value)
        # The upper bound, some thirty years, also turns away infinity; NaN fails every comparison.
        if not 0 < value <= 1e9:
            raise self.invalid(key, "must be a number of seconds above zero")
        return float(value)

    def choice(self, key: str, kind: type[Choice]) -> Choice | None:
        value = self.text(key)
        if value is None:
            return None
        try:
            return kind(value)
        except ValueError:
            raise self._none_of(key, [member.value for member in kind], value) from None

    def _none_of(self, key: str, words: Sequence[str], value: str) -> ConfigError:
        return self.invalid(
            key, f"must be one of {', '.join(f'`{word}`' for word in words)}, not {quote(value)}"
        )

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._wrong(key, "a list of strings", value)
        for item in value:
            if not isinstance(item, str):
                raise self._wrong(key, "a list of strings", item, "a list with ")
        return tuple(value)

    def text_map(self, key: str) -> dict[str, str] | None:
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(key, "a table of strings", value)
        for item in value.values():
            if not isinstance(item, str):
                raise self._wrong(key, "a table of strings", item, "a table with ")
        return dict(value)

    def table(self, key: str) -> SettingsReader:
        """A reader of the table under `key`, which is empty if unset."""
        value = self._value(key)
        if value is None:
            return self._child({}, key)
        if not isinstance(value, Mapping):
            raise self._wrong(key, "a table", value)
        child = self._child(value, key)
        self._children.append(child)
        return child

    def table_or_text(self, key: str) -> SettingsReader | str | None:
        """A setting that is either a word or a table."""
        return self.table(key) if isinstance(self._value(key), Mapping) else self.text(key)

    def tables(self) -> dict[str, SettingsReader]:
        """A reader for each entry of a table whose keys are chosen by the user."""
        return {key: self.table(key) for key, value in self._raw.items() if value is not None}

    def keys(self) -> list[str]:
        return [key for key, value in self._raw.items() if value is not None]

    def path(self) -> str:
        return ".".join(_part(part) for part in self._path)

    def name(self, key: str) -> str:
        return ".".join(_part(part) for part in (*self._path, key))

    def invalid(self, key: str, problem: str) -> SettingError:
        """The error to raise for an invalid value of `key`."""
        return derive_error(f"`{self.name(key)}` {problem}", *self._path, key)

    def unknown_keys(self) -> Iterator[SettingsWarning]:
        """One warning for each key that was never read, in the order of the file."""
        for key in self._raw:
            if key not in self._known:
                text = f"unknown setting `{self.name(key)}` is ignored{did_you_mean(key, self._known)}"
                yield SettingsWarning(text, (*self._path, key))
        for child in self._children:
            yield from child.unknown_keys()

    def _child(self, raw: Mapping[str, Json], key: str) -> SettingsReader:
        return SettingsReader(raw, (*self._path, key))

    def _value(self, key: str) -> Json:
        self._known.add(key)
        return self._raw.get(key)

    def _wrong(self, key: str, wanted: str, value: Json, inside: str = "") -> SettingError:
        return self.invalid(key, f"must be {wanted}, not {inside}{_type_name(value)}")


def did_you_mean(word: str, known: set[str]) -> str:
    """`; did you mean …?` if a known word is similar, else an empty text."""
    close = _CLOSE_MATCHES.get()(word[:100], sorted(known), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _load_close_matches() -> Callable[..., list[str]]:
    """Only mistakes need it."""
    from difflib import get_close_matches  # noqa: PLC0415

    return get_close_matches


_CLOSE_MATCHES = Lazy(_load_close_matches)


def quote(value: str) -> str:
    """A value for use in a message: on one line, and short."""
    return repr(shortened(value))


def plain_name(name: str) -> str:
    """A name that somebody chose, as it is if it is short and stays on one line."""
    return shortened(name) if name.isprintable() else quote(name)[1:-1]


def shortened(name: str) -> str:
    return name if len(name) <= 60 else name[:60] + "…"


def _part(part: str) -> str:
    bare = part.isascii() and part.replace("_", "").replace("-", "").isalnum()
    return part if bare and len(part) <= 60 else quote(part)


def _type_name(value: Json) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a float"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Mapping):
        return "a table"
    return "nothing" if value is None else "a date or time"
