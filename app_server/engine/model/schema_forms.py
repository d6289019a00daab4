"""JSON Schemas of tools in the forms that providers accept. Pure.

`full` is the schema as it is. `plain` has no references, no `const`, no alternatives with null, no annotations that
some servers refuse, and an object without alternatives at the root. It follows JSON Schema 2020-12, also where the
author wrote an older draft or a type that does not exist: one such tool would make a provider refuse every request.
`gemini` lacks `additionalProperties`, too; its enums are texts, and each array says what it has.

A form may allow more than the schema. The tool checks its arguments itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app_server.engine.config.quirk_settings import SchemaForm
from app_server_protocol.encoding import Json

DROPPED: Final = frozenset(
    {
        "$schema",
        "$defs",
        "definitions",
        "$id",
        "$comment",
        "propertyNames",
        "patternProperties",
        "examples",
        "default",
    }
)
"""Keywords that some provider refuses and no provider needs."""

NAMED: Final = frozenset({"properties", "dependentSchemas"})
"""Keywords whose values map names of the schema's author to schemas."""

DEEPEST: Final = 60
"""Maximum depth of a schema that is sent, in levels; a deeper part allows everything."""


TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean"})

ALTERNATIVES: Final = ("anyOf", "oneOf")

LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords whose values are lists of schemas."""

OF_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}
"""Keywords that say something about values of one type."""

OF_ANY_TYPE: Final = frozenset[str]().union(*OF_TYPE.values())


def in_form(schema: Json, form: SchemaForm) -> Json:
    """Return a schema in a provider's form."""
    if form == "full":
        return schema
    root = schema if isinstance(schema, Mapping) else {}
    return _object(_plain(root, root, form, (), 0))


def _object(plain: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a root: an object whose properties are those of all alternatives, none of which is left. A
    property that only an alternative requires is optional.
    """
    out = {key: value for key, value in plain.items() if key not in (*ALTERNATIVES, "allOf", "enum", "not")}
    properties = out.get("properties")
    out["properties"] = dict(properties) if isinstance(properties, dict) else {}
    for key in (*ALTERNATIVES, "allOf"):
        branches = plain.get(key)
        for branch in branches if isinstance(branches, list) else ():
            for name, each in _object(branch)["properties"].items():
                out["properties"].setdefault(name, each)
    return {**out, "type": "object"}


def _plain(
    schema: Json, root: Mapping[str, Json], form: SchemaForm, seen: tuple[str, ...], depth: int
) -> dict[str, Json]:
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return {}
    schema = _in_2020_12(_without_null(schema))  # of "a reference or null" the reference is left
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return {}
        target = {
            **_resolved(reference, root),
            **{key: value for key, value in schema.items() if key != "$ref"},
        }
        return _plain(target, root, form, (*seen, reference), depth + 1)
    out: dict[str, Json] = {}
    for key, value in _of_known_types(schema).items():
        if key in DROPPED or (form == "gemini" and key == "additionalProperties"):
            continue
        if key == "format" and value != "date-time":
            continue
        if key == "const":
            out["enum"] = [value]
        elif key in NAMED and isinstance(value, Mapping):
            out[key] = {name: _plain(each, root, form, seen, depth + 1) for name, each in value.items()}
        elif isinstance(value, Mapping):
            out[key] = _plain(value, root, form, seen, depth + 1)
        elif isinstance(value, list) and key in LISTS:
            out[key] = [_plain(each, root, form, seen, depth + 1) for each in value]
        else:
            out[key] = value
    _distribute_type(out)
    if out.get("type") == "array" and "items" not in out and "prefixItems" not in out:
        out["items"] = {}
    return _for_gemini(out) if form == "gemini" else out


def _in_2020_12(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return a schema of an older draft in the words of the present one."""
    out = dict(schema)
    for key in ("exclusiveMinimum", "exclusiveMaximum", "required"):
        if isinstance(out.get(key), bool):
            del out[key]
    if isinstance(items := out.get("items"), list):
        del out["items"]
        if items:
            out["prefixItems"] = items
    return out


def _of_known_types(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema with one type that exists, or none. Several types become alternatives, each with the keywords
    that are about it.
    """
    kinds = schema.get("type")
    if kinds is None or (isinstance(kinds, str) and kinds in TYPES):
        return schema
    out = {key: value for key, value in schema.items() if key != "type"}
    named = [kind for kind in kinds if kind in TYPES] if isinstance(kinds, list) else []
    if len(named) == 1:
        return {**out, "type": named[0]}
    if named and not any(key in out for key in ALTERNATIVES):
        alternatives = list[Json]()
        for kind in named:
            words = OF_TYPE.get("number" if kind == "integer" else kind, frozenset())
            alternatives.append({"type": kind, **{key: out[key] for key in words if key in out}})
        out = {key: value for key, value in out.items() if key not in OF_ANY_TYPE}
        out["anyOf"] = alternatives
    return out


def _distribute_type(out: dict[str, Json]) -> None:
    """Move a type beside alternatives into them. Alternatives that only name required properties are dropped."""
    for key in ALTERNATIVES:
        branches = out.get(key)
        if not isinstance(branches, list) or "type" not in out:
            continue
        if all(
            isinstance(each, dict) and set(each) <= {"required", "not", "description"} for each in branches
        ):
            del out[key]
        elif "properties" not in out and "items" not in out:
            out[key] = [
                {"type": out["type"], **each} if isinstance(each, dict) else each for each in branches
            ]
            del out["type"]


def _for_gemini(out: dict[str, Json]) -> dict[str, Json]:
    """Return the schema in what Google's servers read: enums of texts, arrays that say what they have, required
    properties that exist.
    """
    if "oneOf" in out and "anyOf" not in out:
        out["anyOf"] = out.pop("oneOf")
    values = out.get("enum")
    if isinstance(values, list) and not all(isinstance(each, str) and each for each in values):
        del out["enum"]
        named = f"One of: {', '.join(str(each) for each in values)}"
        said = out.get("description")
        out["description"] = f"{said} {named}" if isinstance(said, str) and said else named
    if out.get("type") == "array":
        if tuple_items := out.pop("prefixItems", None):
            out.setdefault("items", tuple_items[0] if isinstance(tuple_items, list) else {})
        if not out.get("items"):
            out["items"] = {"type": "string"}
    required, properties = out.get("required"), out.get("properties")
    if isinstance(required, list):
        known = properties if isinstance(properties, dict) else {}
        out["required"] = [name for name in required if name in known]
    return out


def _without_null(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema with null removed from its alternatives: an absent value stands for it."""
    out = dict(schema)
    for key in ALTERNATIVES:
        branches = out.get(key)
        if isinstance(branches, list):
            left = [
                each for each in branches if not (isinstance(each, Mapping) and each.get("type") == "null")
            ]
            if len(left) == 1 and isinstance(left[0], Mapping):
                del out[key]
                out = {**left[0], **out}
            elif left:
                out[key] = left
            else:
                del out[key]
    values = out.get("enum")
    if isinstance(values, list) and None in values:
        out["enum"] = [value for value in values if value is not None]
        if not out["enum"]:
            del out["enum"]
    return out


def _resolved(reference: str, root: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the schema that a reference within the document names; an empty schema for any other reference."""
    if not reference.startswith("#"):
        return {}
    found: Json = root
    for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
