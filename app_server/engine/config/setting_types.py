"""Settings and the kinds of their values: how a value is checked and converted, and how the reference and the JSON
Schema describe it. Pure.

Messages quote a value only if the setting takes one of a few words, because other values may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from app_server_protocol.encoding import Json
from app_server_protocol.values import replace

MAX_INTEGER = 2**63 - 1


class WrongValue(Exception):
    """The setting cannot have this value. The text continues a sentence that begins with the setting's name: `must be
    …`. `rest` is the usable part of the value; None if there is none.
    """

    def __init__(self, problem: str, rest: Json = None) -> None:
        super().__init__(problem)
        self.rest = rest


class Kind(Struct, frozen=True):
    """A kind of value that a setting can have."""

    name: str
    """Name of the kind in the reference, in Markdown."""
    schema: Mapping[str, Json]
    """JSON Schema of a value of this kind."""
    check: Callable[[Json], object]
    """Function that returns the converted value. Raises WrongValue."""


class Setting(Struct, frozen=True):
    """One setting, without its key."""

    kind: Kind
    doc: str = ""
    to: str | None = ""
    """Field that gets the value: empty if it has the same name as the key; None if no single field gets it."""
    default: Json = None
    """Default value of a setting without a field."""
    required: bool = False


class SettingsPart(Struct, frozen=True):
    """Settings of one table that become fields of one class."""

    title: str
    """Title of the section of the reference that describes these settings."""
    table: str
    """Key of the table, with dots; empty for the top level."""
    of: type | None = None
    open: bool = False
    """Whether clients without the user's rights may change these settings: they start, read and grant nothing."""


def is_placeholder(name: str) -> bool:
    """Return whether a part of a key stands for a name that users choose."""
    return name.isupper()


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    return value


def _filled(value: Json) -> str:
    if not _text(value).strip():
        raise WrongValue("must not be empty")
    return str(value)


def _flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", value)
    return value


def _seconds(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("a number of seconds", value)
    # The upper bound is some thirty years. It also rejects infinity; NaN fails every comparison.
    if not 0 < value <= 1e9:
        raise WrongValue("must be a number of seconds above zero")
    return float(value)


def _amount(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("a number", value)
    if not 0 <= value <= 1e9:
        raise WrongValue("must be a number of at least 0")
    return float(value)


def _texts(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _wrong("a list of strings", value)
    for item in value:
        if not isinstance(item, str):
            raise _wrong("a list of strings", item, "a list with ")
    return tuple(value)


def _file_names(value: Json) -> tuple[str, ...]:
    """Return names of files in a folder or below it: project documents are never read from elsewhere."""
    names = _texts(value)
    odd = [
        name for name in names if name.startswith("/") or "\0" in name or {".", ".."} & set(name.split("/"))
    ]
    if odd:
        rest = [name for name in names if name not in odd]
        raise WrongValue(f"must hold names of files in a folder or below it, not {quote(odd[0])}", rest)
    return tuple(name for name in names if name)


def _variables(value: Json) -> tuple[str, ...]:
    """Return names of environment variables. Each may also be a table with `name` and `source`; the source makes no
    difference here.
    """
    if not isinstance(value, list):
        raise _wrong("a list of names", value)
    names = [each.get("name") if isinstance(each, Mapping) else each for each in value]
    if odd := [each for each in names if not isinstance(each, str)]:
        raise _wrong("a list of names", odd[0], "a list with ")
    return tuple(map(str, names))


def _text_map(value: Json) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise _wrong("a table of strings", value)
    for item in value.values():
        if not isinstance(item, str):
            raise _wrong("a table of strings", item, "a table with ")
    return MappingProxyType(dict(value))


def _table(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise _wrong("a table", value)
    return value


_LIST = {"type": "array", "items": {"type": "string"}}

TEXT = Kind("string", {"type": "string"}, _text)
FILLED = Kind("string", {"type": "string", "minLength": 1}, _filled)
FLAG = Kind("boolean", {"type": "boolean"}, _flag)
SECONDS = Kind("seconds, above 0", {"type": "number", "exclusiveMinimum": 0}, _seconds)
AMOUNT = Kind("number, at least 0", {"type": "number", "minimum": 0}, _amount)
TEXTS = Kind("list of strings", _LIST, _texts)
TEXT_SET = Kind("list of strings", _LIST, lambda value: frozenset(_texts(value)))
FILE_NAMES = Kind("list of strings", _LIST, _file_names)
_VARIABLE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "source": {"enum": ["local", "remote"]}},
    "required": ["name"],
}
VARIABLES = Kind(
    "list of strings, or of tables with `name`",
    {"type": "array", "items": {"anyOf": [{"type": "string"}, _VARIABLE]}},
    _variables,
)
TEXT_MAP = Kind("table of strings", {"type": "object", "additionalProperties": {"type": "string"}}, _text_map)
_ACCESS = {"enum": ["read", "write", "deny", "none"]}
_PROFILE = {
    "type": "object",
    "properties": {
        "extends": {"type": "string"},
        "description": {"type": "string"},
        "workspace_roots": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "filesystem": {
            "type": "object",
            "properties": {"glob_scan_max_depth": {"type": "integer", "minimum": 1}},
            "additionalProperties": {
                "anyOf": [_ACCESS, {"type": "object", "additionalProperties": _ACCESS}],
            },
        },
        "network": {"type": "object", "properties": {"enabled": {"type": "boolean"}}},
    },
}
PROFILES = Kind(
    "table of tables",
    {"type": "object", "additionalProperties": _PROFILE},
    # Each profile is parsed when it is chosen, so an error affects only that profile.
    _table,
)
ANYTHING = Kind("anything", {}, lambda value: value)


def word(most: int) -> Kind:
    """Return the kind of a text with 1 to `most` characters."""

    def check(value: Json) -> str:
        if not 1 <= len(_text(value)) <= most:
            raise WrongValue(f"must have 1 to {most} characters")
        return str(value)

    schema = {"type": "string", "minLength": 1, "maxLength": most}
    return Kind(f"string, of at most {most} characters", schema, check)


def integer(least: int = 0, counted: int = MAX_INTEGER) -> Kind:
    """Return the kind of an integer of at least `least`. A value above `counted` counts as `counted`."""

    def check(value: Json) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong("an integer", value)
        if not least <= value <= MAX_INTEGER:
            raise WrongValue(f"must be at least {least} and fit into 64 bits")
        return min(value, counted)

    return Kind(f"integer, at least {least}", {"type": "integer", "minimum": least}, check)


def choice(words: type[StrEnum]) -> Kind:
    """Return the kind of a text that is converted to a member of this enumeration."""
    kind = one_of([each.value for each in words])
    return replace(kind, check=lambda value: words(str(kind.check(value))))


def one_of(words: Iterable[str]) -> Kind:
    """Return the kind of a text that is one of these words."""
    known = tuple(words)

    def check(value: Json) -> str:
        if _text(value) not in known:
            listed = ", ".join(f"`{each}`" for each in known)
            raise WrongValue(f"must be one of {listed}, not {quote(value)}")
        return str(value)

    return Kind(" ".join(f"`{each}`" for each in known), {"enum": list(known)}, check)


def refused(problem: str) -> Kind:
    """Return the kind of a setting for which every value is an error with this text."""

    def check(value: Json) -> None:
        raise WrongValue(problem)

    return Kind("nothing", {"not": {}}, check)


def _wrong(wanted: str, value: Json, inside: str = "") -> WrongValue:
    return WrongValue(f"must be {wanted}, not {inside}{type_name(value)}")


def quote(value: str) -> str:
    """Return a value for use in a message: quoted, on one line, and short."""
    return repr(shortened(value))


def shortened(name: str) -> str:
    """Return a name, cut if it is too long for a message."""
    return name if len(name) <= 60 else name[:60] + "…"


def type_name(value: Json) -> str:
    """Return the TOML name of a value's type."""
    match value:
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a float"
        case str():
            return "a string"
        case list():
            return "a list"
        case Mapping():
            return "a table"
        case None:
            return "nothing"
        case _:
            return "a date or time"
