"""A model's arguments, checked against the tool's own schema; what is wrong is told with its place.

The schema that the model was sent is the one that is checked, so the two cannot drift apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from app_server.core.tools.contract import ToolFailure
from protocol.base import Json

PREFIX = "failed to parse function arguments: "
MAX_QUOTED = 200

_PLAIN = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", "enum", "minimum", "description"}
)
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def parse_arguments(text: str, schema: Mapping[str, Json]) -> dict[str, Json]:
    """The object that `text` holds. Raises ToolFailure with what was expected and where."""
    try:
        value = json.loads(text or "{}", parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"{PREFIX}not JSON: {_short(str(error))}") from error
    if not isinstance(value, dict):
        raise ToolFailure(f"{PREFIX}expected an object, got {_kind(value)}")
    if not surely_fits(value, schema):
        problem = _first_problem(json.dumps(schema, sort_keys=True), value)
        if problem:
            raise ToolFailure(PREFIX + problem)
    return value


def surely_fits(value: Json, schema: Mapping[str, Json]) -> bool:
    """Whether the plain keywords alone show that `value` is valid. False only means: ask the library, which takes
    long to load and is seldom needed then."""
    if not _PLAIN.issuperset(schema):
        return False
    named = schema.get("type", ())
    if named and not any(_is(kind, value) for kind in ((named,) if isinstance(named, str) else named)):
        return False
    if "enum" in schema and not (isinstance(value, str) and value in schema["enum"]):
        return False
    if "minimum" in schema and isinstance(value, int | float) and not value >= schema["minimum"]:
        return False
    if isinstance(value, dict):
        return _object_fits(value, schema)
    if isinstance(value, list) and "items" in schema:
        return all(surely_fits(item, schema["items"]) for item in value)
    return True


def _object_fits(value: Mapping[str, Json], schema: Mapping[str, Json]) -> bool:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not all(name in value for name in schema.get("required", ())):
        return False
    return all(
        surely_fits(item, known[name]) if name in known else others is True for name, item in value.items()
    )


def _is(kind: str, value: Json) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, ()))


def _first_problem(schema: str, value: dict[str, Json]) -> str | None:
    from jsonschema.exceptions import best_match  # noqa: PLC0415  heavy, and needed only once a tool is called

    error = best_match(_validator(schema).iter_errors(value))
    if error is None:
        return None
    return f"{error.json_path}: {_short(error.message)}"


@cache
def _validator(schema: str):  # type: ignore[no-untyped-def]  # the library's protocol is private
    from jsonschema import Draft202012Validator  # noqa: PLC0415  see above

    return Draft202012Validator(json.loads(schema))


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _short(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"


def _kind(value: Json) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
