"""Definitions of JSON Schema, made from classes, and the references between them.

The generator marks in each definition the fields that are always written, whatever their value is. Published
definitions have no marks; `app_server_protocol.export.written` reads them.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from app_server_protocol.encoding import Json

REF: Final = "#/definitions/"

WRITTEN: Final = "x-written"
"""Key of the mark in a definition: the names of the fields that are always written."""


class MarkingGenerator(GenerateJsonSchema):
    """Generator of definitions that have a mark with the fields that are always written."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Json]:
        made = super().model_schema(schema)
        # A union may have fields that all its members share; the definitions of the members have the marks.
        if "oneOf" not in made and (fields := made.get("properties")):
            made[WRITTEN] = [name for name in fields if name in _written_fields(schema["cls"])]
        return made


def _written_fields(model: type[BaseModel]) -> set[str]:
    """Return the names on the wire of the fields that a model, or the struct for which it stands, always writes."""
    kind = vars(sys.modules[model.__module__]).get(model.__name__, model)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        fields = model.model_fields.items()
        return {
            field.alias or name for name, field in fields if field.exclude_if is None and not field.exclude
        }
    omits = kind.__struct_config__.omit_defaults
    return {
        field.encode_name
        for field in msgspec.structs.fields(kind)
        if field.required or not omits or _is_shown(field.default_factory)
    }


def _is_shown(default_factory: object) -> bool:
    """Return whether a field with that factory is written by a struct that omits defaults, as a `shown` one is."""
    return default_factory is not msgspec.NODEFAULT and default_factory not in (list, dict, set)


def references(schema: Json) -> Iterator[str]:
    """Return the names of the definitions that a schema refers to."""
    match schema:
        case dict():
            if isinstance(ref := schema.get("$ref"), str):
                yield ref.removeprefix(REF)
            for inner in schema.values():
                yield from references(inner)
        case list():
            for inner in schema:
                yield from references(inner)
        case _:
            pass


def reachable(found: Mapping[str, Json], roots: Iterable[str]) -> set[str]:
    """Return the names of these definitions and of all definitions that they refer to, directly or not."""
    seen: set[str] = set()
    waiting = [name for name in roots if name in found]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += references(found[name])
    return seen
