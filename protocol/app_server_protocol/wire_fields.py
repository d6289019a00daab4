"""Types of fields that several resources share: ids, texts, numbers, policies; and the messages about invalid requests,
for the author of the client.

Other spellings of policies that clients send (camelCase names, the tag `type` instead of `mode`) are accepted and never
written. Every message about a request begins with "Invalid request: " and names the field; none quotes input, except
the name of an unknown method, shortened.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, ValidationError
from typing_extensions import TypeAliasType

from app_server_protocol.encoding import Json
from app_server_protocol.ids import Checked, ConversationId, is_unicode, parse_conversation_id
from app_server_protocol.jsonrpc import shortened
from app_server_protocol.policy import (
    MAX_EFFORT_LENGTH,
    DangerFullAccess,
    ReadOnly,
    WorkspaceWrite,
    kebab,
    snake,
)


def _uuid(text: str) -> ConversationId:
    parsed = parse_conversation_id(text)
    if parsed is None:
        raise ValueError("expected a UUID")
    return parsed


def _text(text: str) -> str:
    """Return `text` with lone surrogates replaced, which can be sent neither to the model nor to a file."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


KnownId = Annotated[ConversationId, Checked(_uuid)]
UuidText = Annotated[str, Checked(_uuid)]
CleanText = Annotated[str, Checked(_text)]
Flag = StrictBool
Count = Annotated[StrictInt, Field(ge=0, lt=2**64)]


def usual_spelling(raw: Json) -> Json:
    """Return a sandbox policy in any client's spelling with tag, names and fields in the usual spelling."""
    if not isinstance(raw, Mapping):
        return raw
    fields = {snake(key): value for key, value in raw.items() if isinstance(key, str)}
    tag = fields.pop("mode", None) or fields.pop("type", None)
    return {**fields, "mode": kebab(tag) if isinstance(tag, str) else tag}


def _absolute_roots(raw: Json) -> Json:
    fields = usual_spelling(raw)
    roots = fields.get("writable_roots") if isinstance(fields, dict) else None
    if not isinstance(roots, list):
        return fields
    kept = [root for root in roots if not isinstance(root, str) or root.startswith("/")]
    return {**fields, "writable_roots": kept}


SandboxPolicy = TypeAliasType(
    "SandboxPolicy",
    Annotated[
        Annotated[DangerFullAccess | ReadOnly | WorkspaceWrite, Field(discriminator="mode")],
        BeforeValidator(usual_spelling),
    ],
)

StoredSandboxPolicy = Annotated[SandboxPolicy, BeforeValidator(_absolute_roots)]
"""A sandbox policy of a stored conversation. A relative root is dropped, because its base is not known."""

EffortText = Annotated[str, Field(min_length=1, max_length=MAX_EFFORT_LENGTH)]
"""Text of a reasoning effort: a known one or the model's own."""


PREFIX: Final = "Invalid request: "

_EXPECTED: Final = {
    "string_type": "a string",
    "string_sub_type": "a string",
    "string_unicode": "valid Unicode text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer of 64 bits",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "mapping_type": "an object",
    "extra_forbidden": "no such field",
}


def unknown_method(method: str) -> str:
    """Return the error message for a method that has no row; clients look for both of its phrases."""
    return f"{PREFIX}unknown variant `{shortened(method)}`: Method not found"


def describe_validation_error(error: ValidationError) -> tuple[str, str]:
    """Return the message for the first error, and the dotted name of its field (empty for the whole value)."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind = first["type"]
    place = [str(part) for part in first["loc"]]
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        place.append(_tag_name(first))
    field = ".".join(place)
    if kind in ("missing", "union_tag_not_found"):
        return f"{PREFIX}missing field `{shortened(field)}`", field
    return f"{PREFIX}{f'`{shortened(field)}`: ' if field else ''}{_complaint(kind, first)}", field


def _complaint(kind: str, details: Json) -> str:
    context = details.get("ctx", {})
    match kind:
        case "enum" | "literal_error":
            return f"expected {context['expected']}"
        case "union_tag_invalid":
            return f"unknown variant, expected one of {context['expected_tags']}"
        case "value_error":
            return str(context["error"])
        case "greater_than_equal":
            return f"expected a number of at least {context['ge']}"
        case "less_than":
            return f"expected a number below {context['lt']}"
        case _:
            return f"expected {_EXPECTED[kind]}" if kind in _EXPECTED else "an invalid value"


def _tag_name(details: Json) -> str:
    return str(details.get("ctx", {}).get("discriminator", "'type'")).strip("'")
