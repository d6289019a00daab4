"""Arguments of tools: one pydantic model per tool gives the schema for the LLM, the validation and the types.

The rules are the same for every tool. Null for an optional argument means that it is absent. Unknown fields are
ignored. A value of a wrong type is an error that names its path. Nothing is converted: the text "5" is not a number.
The one exception is an integer written with a zero fraction, because JSON has only one kind of number.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BeforeValidator, ConfigDict, FailFast, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, from_json

from app_server.core.model.prompt import FunctionTool
from app_server.core.tools.contract import ToolFailure
from protocol.base import Json, Model

PREFIX = "failed to parse function arguments: "
MAX_QUOTED = 200

_NAMES: Final[Mapping[object, str]] = {str: "string", bool: "boolean", float: "number", int: "number"}


class ToolArguments(Model):
    """The arguments of one tool. A field without a default is required; the default of any other is None."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A number without a fraction."""

Words = Annotated[tuple[str, ...], FailFast()]

Arguments = TypeVar("Arguments", bound=ToolArguments)


def parse_arguments(text: str, kind: type[Arguments]) -> Arguments:
    """Parse and validate; an empty text means no arguments. Raises ToolFailure with the path and the expected type."""
    try:
        return kind.model_validate_json(text.strip() or "{}")
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ToolFailure(PREFIX + _described(problem)) from error


def parse_json(text: str) -> Json:
    """Parse without validation, for arguments that an MCP server validates. None if empty. Raises ToolFailure."""
    if not text.strip():
        return None
    try:
        return from_json(text.encode(), allow_inf_nan=False)
    except ValueError as error:
        raise ToolFailure(f"{PREFIX}not JSON: {_short(str(error))}") from error


def function_tool(name: str, arguments: type[ToolArguments], description: str) -> FunctionTool:
    """What the LLM is sent about a tool."""
    return FunctionTool(name=name, description=description, parameters=parameters(arguments))


@cache
def parameters(kind: type[ToolArguments]) -> dict[str, Json]:
    """The JSON Schema for the LLM. It is derived from the fields alone, so that pydantic builds no validator for a tool
    that is never called. Raises TypeError for a field type that it does not support."""
    required = [name for name, field in kind.model_fields.items() if field.is_required()]
    optional = [name for name in kind.model_fields if name not in required]
    properties = {name: _property(name, kind.model_fields[name]) for name in (*required, *optional)}
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {}) | {"additionalProperties": False}


def _property(name: str, field: FieldInfo) -> dict[str, Json]:
    kind = field.annotation if field.is_required() else _without_none(name, field.annotation)
    schema = _schema(kind)
    return schema if field.description is None else schema | {"description": field.description}


def _schema(annotation: Any) -> dict[str, Json]:
    origin = get_origin(annotation)
    if origin is Annotated:
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


def _without_none(name: str, annotation: Any) -> Any:
    """`X` of `X | None`."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()
    match [kind for kind in kinds if kind is not types.NoneType]:
        case [kind] if len(kinds) == 2:
            return kind
        case _:
            raise TypeError(f"the optional argument {name} must accept null")


def _described(problem: ErrorDetails) -> str:
    place, message = problem["loc"], _short(problem["msg"])
    if place:
        return f"{_path(place)}: {message}"
    if problem["type"] == "model_type":
        return "expected an object"
    return f"not JSON: {message.removeprefix('Invalid JSON: ')}"


def _path(place: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)


def _short(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
