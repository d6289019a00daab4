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


def parse_arguments(text: str, schema: Mapping[str, Json]) -> dict[str, Json]:
    """The object that `text` holds. Raises ToolFailure with what was expected and where."""
    try:
        value = json.loads(text or "{}", parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"{PREFIX}not JSON: {_short(str(error))}") from error
    if not isinstance(value, dict):
        raise ToolFailure(f"{PREFIX}expected an object, got {_kind(value)}")
    problem = _first_problem(json.dumps(schema, sort_keys=True), value)
    if problem:
        raise ToolFailure(PREFIX + problem)
    return value


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
