"""Values that a published schema describes: the least one, and whole ones until each alternative of each union has
been there. And whether such a value is written as it was read."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app_server_protocol.structs import Json

THREAD = "0199e3a4-5b6c-7d8e-9f01-23456789abcd"
ANYTHING: Json = {"a": [1, None, "ü"]}
KNOWN: Mapping[str, Json] = {
    "ConversationId": THREAD,
    "ThreadItem": {"type": "contextCompaction", "id": "i", "startedAtMs": 1, "completedAtMs": 2},
    "ResponseItem": {"type": "from_the_future", "kept": [1]},
}
"""What stands for a definition inside of others: it asks for more than its schema says, or has examples of its own."""
NULL: Json = {"type": "null"}


def check_round_trip(name: str, definitions: Mapping[str, Json], through: Callable[[Json], Json]) -> None:
    """What the function reads and writes is what it was given. Raises AssertionError."""
    least, *whole = examples(name, definitions)
    written = through(least)
    assert _kept(least, written), (least, written)
    for value in whole:
        assert bare(through(value)) == bare(value)


def bare(value: Json) -> Json:
    """The value without its nulls."""
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
    """The least value of that definition, and whole ones."""
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
    """How many whole values it takes to see every alternative."""
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
    """Builds one value; `turn` chooses alternatives, -1 the least of everything."""

    def __init__(self, definitions: Mapping[str, Json], turn: int) -> None:
        self._definitions, self._turn = definitions, turn

    def build(self, schema: Json, above: tuple[str, ...]) -> Json:
        """`above`: the definitions that this value is in."""
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
