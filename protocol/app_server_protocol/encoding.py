"""JSON as it is written to the wire and to files: compact UTF-8, and escapes for what UTF-8 cannot carry."""

from __future__ import annotations

import json
import math
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Protocol,
    runtime_checkable,
)

import msgspec

if TYPE_CHECKING:
    pass

Json = Any
"""A JSON value as Python has it; the only place where `Any` is written."""


DEEPEST: Final = 200
"""Maximum depth of a value that is written if its text needs escapes."""


@runtime_checkable
class JsonSerializable(Protocol):
    """A value that is sent as JSON, either a struct or a model."""

    def to_json(self) -> bytes:
        """Return compact UTF-8 JSON. Never raises: text that UTF-8 cannot encode is written as an escape."""
        ...

    def to_value(self) -> Json:
        """Return the value that `to_json` writes, as plain dicts, lists and scalars."""
        ...


def json_bytes(value: Json) -> bytes:
    """Return a struct or plain data as compact UTF-8 JSON; text that UTF-8 cannot encode is written as an escape."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return escaped_json(msgspec.to_builtins(value, enc_hook=_builtin))


def escaped_json(value: Json) -> bytes:
    """Return a value as JSON in ASCII, for the rare text with a lone surrogate in it."""
    return json.dumps(_plain(value), separators=(",", ":")).encode("ascii")


def _plain(value: Json, depth: int = 0) -> Json:
    """Replace everything in `value` that `json.dumps` would refuse or not write as JSON."""
    if depth > DEEPEST:
        return "(nested too deeply)"
    match value:
        case dict():
            return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(inner, depth + 1) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return value.decode("utf-8", "replace")
        case str() | int() | None:
            return value
        case _:
            return str(value)


def _raw(value: Json) -> Json:
    # This function is called with many values, and checking whether one is `JsonSerializable` takes longer than
    # writing it.
    to_json = getattr(value, "to_json", None)
    return str(value) if to_json is None else msgspec.Raw(to_json())


def _builtin(value: Json) -> Json:
    return value.to_value() if isinstance(value, JsonSerializable) else str(value)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_raw)
