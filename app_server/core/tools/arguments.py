"""Arguments of tools: one struct for each tool gives the schema for the LLM, the validation and the types.

The rules are the same for every tool. Null for an optional argument means that it is absent. Unknown fields are
ignored. A value of a wrong type is an error that names its path. Nothing is converted: the text "5" is not a number.
The one exception is an integer written with a zero fraction, because JSON has only one kind of number.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import fields
from pydantic_core import from_json

from app_server.core.tools.contract import ToolFailure
from protocol.structs import Json, Struct

PREFIX = "failed to parse function arguments: "
MAX_QUOTED = 200

_NAMES: Final[Mapping[object, str]] = {str: "string", bool: "boolean", float: "number", int: "number"}


class ToolArguments(Struct):
    """The arguments of one tool. A field without a default is required; the default of any other is None."""

    told: ClassVar[str] = ""
    """What the model is told of the tool."""


Arguments = TypeVar("Arguments", bound=ToolArguments)


def _number(text: str) -> float | str:
    """Convert a number with a fraction; one that is out of range stays text, which no field accepts."""
    value = float(text)
    return int(value) if value.is_integer() else value if isfinite(value) else text


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)


def parse_arguments(text: str, kind: type[Arguments]) -> Arguments:
    """Parse and validate; an empty text means no arguments. Raises ToolFailure with the path and the expected type."""
    try:
        return msgspec.convert(_DECODER.decode(text.strip() or "{}"), kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        raise ToolFailure(f"{PREFIX}{place.rstrip('`') or '$'}: {_short(problem)}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _not_json(error) from error


def parse_json(text: str) -> Json:
    """Parse without validation, for arguments that an MCP server validates. None if empty. Raises ToolFailure."""
    if not text.strip():
        return None
    try:
        return from_json(text.encode(), allow_inf_nan=False)
    except ValueError as error:
        raise _not_json(error) from error


@cache
def parameters(kind: type[ToolArguments]) -> dict[str, Json]:
    """Return the JSON Schema for the LLM. Raises TypeError for a field type that it does not support."""
    hints = get_type_hints(kind, include_extras=True)
    required = [field.name for field in fields(kind) if field.required]
    optional = [name for name in kind.__struct_fields__ if name not in required]
    properties = {name: _schema(hints[name]) for name in (*required, *optional)}
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {}) | {"additionalProperties": False}


def _schema(annotation: Any) -> dict[str, Json]:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, meta = get_args(annotation)
        return _schema(inner) | ({"description": meta.description} if meta.description else {})
    if origin in (Union, types.UnionType) and get_args(annotation)[1:] == (types.NoneType,):
        return _schema(get_args(annotation)[0])
    if origin is tuple:
        return {"type": "array", "items": _schema(get_args(annotation)[0])}
    if annotation in _NAMES:
        return {"type": _NAMES[annotation]}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"type": "string", "enum": [member.value for member in annotation]}
    if isinstance(annotation, type) and issubclass(annotation, ToolArguments):
        return parameters(annotation)
    raise TypeError(f"no schema for {annotation!r}")


def _not_json(error: Exception) -> ToolFailure:
    return ToolFailure(f"{PREFIX}not JSON: {_short(str(error))}")


def _short(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
