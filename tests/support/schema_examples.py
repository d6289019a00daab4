"""Example values of a published schema: the smallest one, and complete ones until each alternative of each union has
been used.

The module also checks that such a value is written as it was read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app_server_protocol.encoding import Json

THREAD = "0199e3a4-5b6c-7d8e-9f01-23456789abcd"
ANYTHING: Json = {"a": [1, None, "ü"]}
KNOWN: Mapping[str, Json] = {
    "ConversationId": THREAD,
    "ThreadItem": {"type": "contextCompaction", "id": "i", "startedAtMs": 1, "completedAtMs": 2},
    "ResponseItem": {"type": "from_the_future", "kept": [1]},
}
"""Values that stand for a definition inside other definitions: it requires more than its schema says, or has examples
of its own.
"""
NULL: Json = {"type": "null"}


def check_round_trip(name: str, definitions: Mapping[str, Json], through: Callable[[Json], Json]) -> None:
    """Check that a function which reads and writes a value leaves it unchanged. Raises AssertionError."""
    least, *whole = examples(name, definitions)
    written = through(least)
    assert _kept(least, written), (least, written)
    for value in whole:
        assert bare(through(value)) == bare(value)


def bare(value: Json) -> Json:
    """Return the value without its nulls."""
    if isinstance(value, dict):
        return {key: bare(each) for key, each in value.items() if each is not None}
    return [bare(each) for each in value] if isinstance(value, list) else value


def _kept(part: Json, value: Json) -> bool:
    if isinstance(part, dict):
        return all(each is None or _kept(each, value.get(key)) for key, each in part.items())
    if isinstance(part, list):
        return len(part) == len(value) and all(map(_kept, part, value))
    return bool(part == value)


def examples(name: str, definitions: Mapping[str, Json]) -> list[Json]:
    """Return the smallest value of that definition, and complete ones."""
    turns = range(-1, _width(name, definitions, set()))
    return [_Builder(definitions, turn).build(definitions[name], (name,)) for turn in turns]


def _alternatives(schema: Json) -> list[Json]:
    named = schema.get("oneOf") or schema.get("anyOf")
    return named or [{"const": each} for each in schema.get("enum", ())]


def _parts(schema: Json) -> Iterator[Json]:
    yield from _alternatives(schema)
    yield from schema.get("properties", {}).values()
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield schema[key]


def _named(schema: Json) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _width(name: str, definitions: Mapping[str, Json], seen: set[str]) -> int:
    """Return how many complete values are needed to use every alternative."""
    seen.add(name)
    most, waiting = 1, [definitions[name]]
    while waiting:
        schema = waiting.pop()
        most = max(most, len(_alternatives(schema)))
        waiting += _parts(schema)
        if "$ref" in schema and _named(schema) not in {*seen, *KNOWN}:
            most = max(most, _width(_named(schema), definitions, seen))
    return most


class _Builder:
    """Builder of one value. `turn` chooses the alternatives; -1 builds the smallest value."""

    def __init__(self, definitions: Mapping[str, Json], turn: int) -> None:
        self._definitions, self._turn = definitions, turn

    def build(self, schema: Json, above: tuple[str, ...]) -> Json:
        """Build a value of the schema. `above` names the definitions that contain it."""
        if "$ref" in schema:
            name = _named(schema)
            if name in KNOWN:
                return KNOWN[name]
            inner = _Builder(self._definitions, -1) if name in above else self
            return inner.build(self._definitions[name], (*above, name))
        if "const" in schema:
            return schema["const"]
        if alternatives := _alternatives(schema):
            if self._turn < 0 and NULL in alternatives:
                return None
            whole = [each for each in alternatives if each != NULL]
            built = self.build(whole[max(self._turn, 0) % len(whole)], above)
            return {**self._object(schema, above), **built} if "properties" in schema else built
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, above)
        if kind == "array":
            count = schema.get("minItems", int(self._turn >= 0))
            return [self.build(schema.get("items", {}), above)] * count
        plain: dict[Any, Json] = {"string": "/ü", "integer": 1, "number": 1, "boolean": True, "null": None}
        return plain.get(kind, ANYTHING)

    def _object(self, schema: Json, above: tuple[str, ...]) -> Json:
        built = {
            key: self.build(value, above)
            for key, value in schema.get("properties", {}).items()
            if self._turn >= 0 or key in schema.get("required", ())
        }
        more = schema.get("additionalProperties", False)
        if self._turn >= 0 and more:
            built |= ANYTHING if more is True else {"/ü": self.build(more, above)}
        return built
