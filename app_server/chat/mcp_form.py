"""The form by which an MCP server asks for values: its fields in words, and what is wrong with values for it. Pure.

The form is JSON of others: whatever is not as the protocol prescribes is left out.
"""

from __future__ import annotations

import json
from typing import Final

from protocol.base import Json

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def asked_fields(schema: Json) -> list[str]:
    """A line for each field: name, kind, whether it is required, what it is for, what it may be."""
    required = _required(schema)
    return [_line(name, field, name in required) for name, field in _fields(schema).items()]


def form_problem(schema: Json, values: Json) -> str | None:
    """Why the values are no answer; None where they are one."""
    missing = [name for name in _required(schema) if values.get(name) is None]
    if missing:
        return f"required, and not given: {', '.join(missing)}"
    for name, value in values.items():
        field = _fields(schema).get(name, {})
        kinds = TYPES.get(str(field.get("type")))
        if kinds is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            return f"{name}: expected a value of type {field['type']}"
        choices = _choices(field)
        given = value if isinstance(value, list) else [value]
        if choices and not all(each in choices for each in given):
            return f"{name}: expected one of {_words(choices)}"
    return None


def _line(name: str, field: Json, required: bool) -> str:
    kind = f"{field.get('type') or 'any value'}, {'required' if required else 'optional'}"
    texts = [str(field[key]) for key in ("title", "description") if field.get(key)]
    if choices := _choices(field):
        texts.append(f"one of {_words(choices)}")
    if field.get("default") is not None:
        texts.append(f"otherwise {json.dumps(field['default'], ensure_ascii=False)}")
    return f"{name} ({kind})" + (f": {'; '.join(texts)}" if texts else "")


def _fields(schema: Json) -> dict[str, Json]:
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict):
        return {}
    return {name: field if isinstance(field, dict) else {} for name, field in fields.items()}


def _required(schema: Json) -> list[str]:
    names = schema.get("required") if isinstance(schema, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _choices(field: Json) -> list[Json]:
    """What a field may be, or each part of one that takes several; empty: anything."""
    items = field.get("items")
    for place in (field, items if isinstance(items, dict) else {}):
        if isinstance(place.get("enum"), list):
            return list(place["enum"])
        for key in ("oneOf", "anyOf"):
            if isinstance(place.get(key), list):
                return [each["const"] for each in place[key] if isinstance(each, dict) and "const" in each]
    return []


def _words(choices: list[Json]) -> str:
    return ", ".join(json.dumps(each, ensure_ascii=False) for each in choices)
