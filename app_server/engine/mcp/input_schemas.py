"""Normalises the input schemas of tools for model APIs, or rejects them. Pure.

Schemas stay nearly as the server wrote them, because enums, limits and descriptions help the model. Parts that would
make an API reject the whole request are corrected if the meaning is clear; otherwise the tool is omitted.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_core import to_json

from app_server_protocol.encoding import Json

TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
MAX_DEPTH = 24
MAX_SCHEMA_BYTES = 64 * 1024
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_NOTES = ("$schema", "$id", "$comment")


class InvalidSchema(ValueError):
    """No model API accepts this schema; the message is the reason."""


def normalize_schema(raw: Json) -> dict[str, Json]:
    """Return the schema for the model. Raises InvalidSchema."""
    if not isinstance(raw, dict):
        raise InvalidSchema("it is not an object")
    kind = raw.get("type", "object")
    if kind != "object":
        raise InvalidSchema(f"its type is {str(kind)[:40]!r}, not 'object'")
    fit = _normalize(raw, 0)
    assert isinstance(fit, dict)
    fit = {"type": "object", **fit}
    fit.setdefault("properties", {})
    _check_references(fit)
    try:
        size = len(to_json(fit))
    except ValueError:
        raise InvalidSchema("it is not valid Unicode text") from None
    if size > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"it is longer than {MAX_SCHEMA_BYTES} bytes")
    return fit


def _normalize(raw: Json, depth: int) -> Json:
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, dict) or depth > MAX_DEPTH:
        raise InvalidSchema("a part of it is no schema" if depth <= MAX_DEPTH else "it is nested too deeply")
    _check_type(raw)
    fit = {key: value for key, value in raw.items() if key not in _NOTES and value is not None}
    for key in _MAPS:
        if key in fit:
            fit[key] = {
                name: _plain(_normalize(part, depth + 1)) for name, part in _mapping(fit[key]).items()
            }
    for key in _LISTS:
        if key in fit:
            fit[key] = [_plain(_normalize(part, depth + 1)) for part in _sequence(fit[key])]
    for key in _SINGLE:
        if key in fit:
            fit[key] = _normalize(fit[key], depth + 1)
    required = fit.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise InvalidSchema("`required` is no list of names")
    if fit.get("type") == "array" and "items" not in fit:
        fit["items"] = {}
    return fit


def _check_type(raw: dict[str, Json]) -> None:
    kinds = raw.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind is not None and (not isinstance(kind, str) or kind not in TYPES):
            raise InvalidSchema(f"there is no type {str(kind)[:40]!r}")


def _check_references(schema: dict[str, Json]) -> None:
    """Raise InvalidSchema unless every `$ref` refers to a part of the schema."""
    for target in _references(schema):
        place: Json = schema
        steps = target.removeprefix("#").split("/")[1:] if isinstance(target, str) else []
        if not isinstance(target, str) or not target.startswith("#"):
            raise InvalidSchema("it refers to another document")
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, dict) else None
        if place is None:
            raise InvalidSchema(f"it refers to {target[:80]!r}, which is missing")


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
    """Replace the schema `true` by an empty object: some APIs do not accept it."""
    return {} if schema is True else schema


def _mapping(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise InvalidSchema("a part of it is no map of schemas")
    return value


def _sequence(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise InvalidSchema("a part of it is no list of schemas")
    return value
