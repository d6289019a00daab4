"""JSON Schemas of tools in the forms that providers accept. Pure.

`full` is the schema as it is. `plain` has no references, no `const`, no alternatives with null, no annotations that
some servers refuse, and an object at the root. `gemini` lacks `additionalProperties`, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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


def in_form(schema: Json, form: str) -> Json:
    """Return a schema in a provider's form."""
    if form == "full":
        return schema
    root = schema if isinstance(schema, Mapping) else {}
    plain = _plain(root, root, form, (), 0)
    plain["type"] = "object"
    properties = plain.get("properties")
    plain["properties"] = properties if isinstance(properties, dict) else {}
    return plain


def _plain(
    schema: Json, root: Mapping[str, Json], form: str, seen: tuple[str, ...], depth: int
) -> dict[str, Json]:
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return {}
        target = {
            **_resolved(reference, root),
            **{key: value for key, value in schema.items() if key != "$ref"},
        }
        return _plain(target, root, form, (*seen, reference), depth + 1)
    merged = _without_null(schema)
    out: dict[str, Json] = {}
    for key, value in merged.items():
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
        elif isinstance(value, list) and key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            out[key] = [_plain(each, root, form, seen, depth + 1) for each in value]
        else:
            out[key] = value
    return out


def _without_null(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema with null removed from its alternatives: an absent value stands for it."""
    out = dict(schema)
    for key in ("anyOf", "oneOf"):
        branches = out.get(key)
        if isinstance(branches, list):
            left = [
                each for each in branches if not (isinstance(each, Mapping) and each.get("type") == "null")
            ]
            if len(left) == 1 and isinstance(left[0], Mapping):
                del out[key]
                out = {**left[0], **out}
            else:
                out[key] = left
    kinds = out.get("type")
    if isinstance(kinds, list):
        named = [kind for kind in kinds if kind != "null"]
        if len(named) == 1:
            out["type"] = named[0]
        else:
            del out["type"]
            if named:
                out["anyOf"] = [{"type": kind} for kind in named]
    values = out.get("enum")
    if isinstance(values, list) and None in values:
        out["enum"] = [value for value in values if value is not None]
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
