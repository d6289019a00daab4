"""Input schemas of tools as a model API will take them, or not at all. Pure.

Schemas go out nearly as the server wrote them, since enums, limits and descriptions tell the model what to
send. What an API would refuse the whole request for is either put right where the meaning is plain, or costs
the tool.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_core import to_json

from app_server.core.mcp.limits import MAX_SCHEMA_BYTES
from protocol.base import Json

TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
MAX_DEPTH = 24
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_NOTES = ("$schema", "$id", "$comment")


class UnfitSchema(ValueError):
    """No model API would take this; the message says what is wrong."""


def fit_schema(raw: Json) -> dict[str, Json]:
    """The schema for the model. Raises UnfitSchema."""
    if not isinstance(raw, dict):
        raise UnfitSchema("it is not an object")
    kind = raw.get("type", "object")
    if kind != "object":
        raise UnfitSchema(f"its type is {str(kind)[:40]!r}, not 'object'")
    fit = _fit(raw, 0)
    assert isinstance(fit, dict)
    fit = {"type": "object", **fit}
    fit.setdefault("properties", {})
    _check_references(fit)
    if len(to_json(fit)) > MAX_SCHEMA_BYTES:
        raise UnfitSchema(f"it is longer than {MAX_SCHEMA_BYTES} bytes")
    return fit


def _fit(raw: Json, depth: int) -> Json:
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, dict) or depth > MAX_DEPTH:
        raise UnfitSchema("a part of it is no schema" if depth <= MAX_DEPTH else "it is nested too deeply")
    _check_type(raw)
    fit = {key: value for key, value in raw.items() if key not in _NOTES and value is not None}
    for key in _MAPS:
        if key in fit:
            fit[key] = {name: _plain(_fit(part, depth + 1)) for name, part in _mapping(fit[key]).items()}
    for key in _LISTS:
        if key in fit:
            fit[key] = [_plain(_fit(part, depth + 1)) for part in _sequence(fit[key])]
    for key in _SINGLE:
        if key in fit:
            fit[key] = _fit(fit[key], depth + 1)
    required = fit.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise UnfitSchema("`required` is no list of names")
    if fit.get("type") == "array" and "items" not in fit:
        fit["items"] = {}
    return fit


def _check_type(raw: dict[str, Json]) -> None:
    kinds = raw.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind is not None and (not isinstance(kind, str) or kind not in TYPES):
            raise UnfitSchema(f"there is no type {str(kind)[:40]!r}")


def _check_references(schema: dict[str, Json]) -> None:
    """Every `$ref` leads somewhere inside."""
    for target in _references(schema):
        place: Json = schema
        steps = target.removeprefix("#").split("/")[1:] if isinstance(target, str) else []
        if not isinstance(target, str) or not target.startswith("#"):
            raise UnfitSchema("it refers to another document")
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, dict) else None
        if place is None:
            raise UnfitSchema(f"it refers to {target[:80]!r}, which is missing")


def _references(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        if "$ref" in value and not isinstance(value["$ref"], dict):
            yield value["$ref"]
        for part in value.values():
            yield from _references(part)
    elif isinstance(value, list):
        for part in value:
            yield from _references(part)


def _plain(schema: Json) -> Json:
    """Some APIs know no `true` in the place of a schema."""
    return {} if schema is True else schema


def _mapping(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise UnfitSchema("a part of it is no map of schemas")
    return value


def _sequence(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise UnfitSchema("a part of it is no list of schemas")
    return value
