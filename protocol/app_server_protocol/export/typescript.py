"""The published definitions as TypeScript: one file per type and an index. Pure, schemas in and text out."""

import json
import re
from collections.abc import Mapping
from typing import Final

from app_server_protocol.export.schemas import REF, references
from app_server_protocol.structs import Json

_HEADER: Final = "// Generated from the protocol's definitions. Do not edit.\n\n"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_SCALARS: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def files(definitions: Mapping[str, Json]) -> dict[str, str]:
    """Return every file's text by its name."""
    named = {name: schema for name, schema in definitions.items() if _IDENTIFIER.fullmatch(name)}
    made = {f"{name}.ts": module(name, schema) for name, schema in named.items()}
    made["index.ts"] = _HEADER + "".join(f'export type {{ {name} }} from "./{name}";\n' for name in named)
    return made


def module(name: str, schema: Json) -> str:
    used = sorted({ref for ref in references(schema) if ref != name})
    imports = "".join(f'import type {{ {ref} }} from "./{ref}";\n' for ref in used)
    comment = _comment(schema.get("description"))
    return f"{_HEADER}{imports}{chr(10) if imports else ''}{comment}export type {name} = {type_of(schema)};\n"


def type_of(schema: Json) -> str:
    """Return a schema as a type expression."""
    match schema:
        case {"$ref": str(ref)}:
            return ref.removeprefix(REF)
        case {"const": value}:
            return json.dumps(value)
        case {"enum": list(values)}:
            return " | ".join(json.dumps(value) for value in values)
        case {"oneOf": list(), "properties": dict()}:
            common = {key: value for key, value in schema.items() if key != "oneOf"}
            return f"({type_of({'oneOf': schema['oneOf']})}) & {type_of(common)}"
        case {"oneOf": list(options)} | {"anyOf": list(options)}:
            return " | ".join(dict.fromkeys(type_of(option) for option in options))
        case {"type": "array"}:
            inner = type_of(schema.get("items", {}))
            return f"Array<{inner}>"
        case {"properties": dict(fields)}:
            required = schema.get("required", [])
            lines = [_field(name, field, name in required) for name, field in fields.items()]
            return "{ " + " ".join(lines) + " }"
        case {"type": "object"}:
            inner = schema.get("additionalProperties")
            if inner is None:
                return "Record<string, never>"
            return f"{{ [key: string]: {type_of(inner) if isinstance(inner, dict) else 'unknown'} }}"
        case {"type": str(kind)}:
            return _SCALARS[kind]
        case _:
            return "unknown"


def _field(name: str, schema: Json, required: bool) -> str:
    spelled = name if _IDENTIFIER.fullmatch(name) else json.dumps(name)
    return f"{spelled}{'' if required else '?'}: {type_of(schema)};"


def _comment(text: str | None) -> str:
    if not text:
        return ""
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in text.splitlines()) + " */\n"
