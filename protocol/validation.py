"""Explains what is wrong with a request, for the author of the client.

Every message begins with "Invalid request: " and names the field; none quotes what was sent, except the
name of an unknown method, cut short.
"""

from typing import Final

from pydantic import ValidationError

from protocol.jsonrpc import shortened
from protocol.structs import Json

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
    """Return the message for the first thing that is wrong, and the dotted name of its field (empty: the whole)."""
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
