"""The published definitions as TypeScript: one file per type and an index, in the same folders as in codex. Pure,
schemas in and text out.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from app_server_protocol.encoding import Json
from app_server_protocol.export.definitions import REF, references

_HEADER: Final = "// Generated from the protocol's definitions. Do not edit.\n\n"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_THREADS: Final = "v2"
_ANYTHING: Final = "JsonValue"
_ANYTHING_PLACE: Final = "serde_json/JsonValue"
_ANYTHING_TYPE: Final = (
    "number | string | boolean | Array<JsonValue> | { [key in string]?: JsonValue } | null"
)

UNIONS: Final = ("ClientNotification", "ClientRequest", "ServerNotification", "ServerRequest")

BESIDE_THREADS: Final = (
    *("AbsolutePathBuf", "AuthMode", "AutoCompactTokenLimitScope", "ClientInfo", "CollaborationMode"),
    *("ForcedLoginMethod", "FunctionCallOutputBody", "FuzzyFileSearchMatchType", "FuzzyFileSearchParams"),
    *("FuzzyFileSearchResponse", "FuzzyFileSearchResult", "FuzzyFileSearchSessionCompletedNotification"),
    *("FuzzyFileSearchSessionUpdatedNotification", "ImageDetail", "ImageGenerationFailure"),
    *("ImageGenerationInputImage", "InitializeCapabilities", "InitializeParams", "InitializeResponse"),
    *("InputModality", "LegacyAppPathString", "McpServerInfo", "MessagePhase", "ModeKind"),
    *("NetworkPolicyAmendment", "NetworkPolicyRuleAction", "Personality", "PlanType", "ReasoningEffort"),
    *("ReasoningSummary", "RequestId", "Resource", "ResourceContent", "ResourceTemplate", "Settings"),
    *("SubAgentSource", "Tool", "Verbosity", "WebSearchContextSize", "WebSearchLocation", "WebSearchMode"),
    "WebSearchToolConfig",
)
"""Types of the thread API that clients of codex import from the folder above `v2`, in which codex 0.171 has them."""

_SCALARS: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def files(conversations: Mapping[str, Json], threads: Mapping[str, Json]) -> dict[str, str]:
    """Return every file's text by its name: the thread API in `v2`, all other types beside it.

    As in codex, the unions of messages beside `v2` have the messages of both APIs, and types that concern more than
    threads are there. In `v2` the unions have the messages of the thread API only.
    """
    here, there = _named(conversations), _named(threads)
    made = {f"{name}.ts": module(name, schema) for name, schema in here.items()}
    for name in UNIONS:
        made[f"{name}.ts"] = _module_of_both(name, _all_messages(here[name], there[name]), here, there)
    shared = sorted(name for name in BESIDE_THREADS if name in there)
    for name in shared:
        both = _with_older_fields(here.get(name, {}), there[name])
        made[f"{name}.ts"] = (
            f'{_HEADER}export type {{ {name} }} from "./{_THREADS}/{name}";\n'
            if both == there[name]
            else _module_of_both(name, both, here, there)
        )
    made["index.ts"] = _index({*here, *shared}) + f'export * as {_THREADS} from "./{_THREADS}";\n'
    made |= {f"{_THREADS}/{name}.ts": module(name, schema, up="../") for name, schema in there.items()}
    made[f"{_THREADS}/index.ts"] = _index(there)
    made[f"{_ANYTHING_PLACE}.ts"] = f"{_HEADER}export type {_ANYTHING} = {_ANYTHING_TYPE};\n"
    return made


def module(name: str, schema: Json, *, up: str = "./") -> str:
    """Return the file of a type whose references are in the same folder; `up` is the path to the folder
    of all files.
    """
    return _module(name, schema, {ref: f"./{ref}" for ref in references(schema)}, up)


def _module_of_both(name: str, schema: Json, here: Mapping[str, Json], there: Mapping[str, Json]) -> str:
    """Return the file, beside `v2`, of a type that refers to types of both APIs. The thread API's come first."""
    in_threads = {ref for ref in references(schema) if ref in there and ref not in BESIDE_THREADS}
    places = {ref: f"./{_THREADS}/{ref}" if ref in in_threads else f"./{ref}" for ref in references(schema)}
    return _module(name, schema, places, "./")


def _module(name: str, schema: Json, places: Mapping[str, str], up: str) -> str:
    expression = type_of(schema, anything=_ANYTHING)
    places = {ref: place for ref, place in places.items() if ref != name}
    if re.search(rf"\b{_ANYTHING}\b", expression):
        places[_ANYTHING] = f"{up}{_ANYTHING_PLACE}"
    imports = "".join(f'import type {{ {ref} }} from "{places[ref]}";\n' for ref in sorted(places))
    comment = _comment(schema.get("description"))
    return f"{_HEADER}{imports}{chr(10) if imports else ''}{comment}export type {name} = {expression};\n"


def _named(definitions: Mapping[str, Json]) -> dict[str, Json]:
    return {name: schema for name, schema in definitions.items() if _IDENTIFIER.fullmatch(name)}


def _index(names: Iterable[str]) -> str:
    return _HEADER + "".join(f'export type {{ {name} }} from "./{name}";\n' for name in sorted(names))


def _all_messages(older: Json, newer: Json) -> Json:
    """Return the union of the messages of both APIs; of a method that both have, it has the newer API's message."""
    options = {
        option["properties"]["method"]["const"]: option for option in (*older["oneOf"], *newer["oneOf"])
    }
    return {"oneOf": list(options.values())}


def _with_older_fields(older: Json, newer: Json) -> Json:
    """Return a type of the thread API with the additional fields of the conversation API's type of that name."""
    fields: Mapping[str, Json] = older.get("properties", {})
    if not fields or "properties" not in newer:
        return newer
    merged = {**fields, **newer["properties"]}
    for name in fields.keys() & newer["properties"].keys():
        old, new = fields[name], newer["properties"][name]
        if old != new and [*references(old)] and [*references(new)]:
            merged[name] = {"anyOf": [new, old]}
    return {**newer, "properties": merged}


def type_of(schema: Json, *, anything: str = "unknown") -> str:
    """Return a schema as a type expression; `anything` is the expression for a value of any kind."""
    inside = partial(type_of, anything=anything)
    match schema:
        case {"$ref": str(ref)}:
            return ref.removeprefix(REF)
        case {"const": value}:
            return json.dumps(value)
        case {"enum": list(values)}:
            return " | ".join(json.dumps(value) for value in values)
        case {"oneOf": list(), "properties": dict()}:
            common = {key: value for key, value in schema.items() if key != "oneOf"}
            return f"({inside({'oneOf': schema['oneOf']})}) & {inside(common)}"
        case {"oneOf": list(options)} | {"anyOf": list(options)}:
            return " | ".join(dict.fromkeys(inside(option) for option in options))
        case {"type": "array", "maxItems": 0}:
            return "Array<never>"
        case {"type": "array"}:
            inner = inside(schema.get("items", {}))
            return f"Array<{inner}>"
        case {"properties": dict(fields)}:
            required = schema.get("required", [])
            lines = [_field(name, inside(field), name in required) for name, field in fields.items()]
            return "{ " + " ".join(lines) + " }"
        case {"type": "object"}:
            inner = schema.get("additionalProperties")
            if inner is None:
                return "Record<string, never>"
            return f"{{ [key in string]?: {inside(inner) if isinstance(inner, dict) else anything} }}"
        case {"type": str(kind)}:
            return _SCALARS[kind]
        case _:
            return anything


def _field(name: str, expression: str, required: bool) -> str:
    spelled = name if _IDENTIFIER.fullmatch(name) else json.dumps(name)
    return f"{spelled}{'' if required else '?'}: {expression};"


def _comment(text: str | None) -> str:
    if not text:
        return ""
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in text.splitlines()) + " */\n"
