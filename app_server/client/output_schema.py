"""Structured output: a pydantic model or a JSON Schema for the request, the final message as an instance of it.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Generic, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ValidationError

from app_server.client.turn_handle import TurnResult
from protocol.structs import Json

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

LONGEST_ECHO = 2000
"""Characters of the model's message in an error."""

SCHEMAS_BY_NAME = ("properties", "$defs", "definitions")
LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMAS = ("items", "not", "additionalProperties")


class OutputModel(Struct, Generic[M], frozen=True):
    """What the final message has to be."""

    model: type[M]

    def schema(self) -> Json:
        return strict(self.model.model_json_schema())

    def parsed(self, result: TurnResult[None]) -> TurnResult[M]:
        """Return the result with its output, or with the reason why there is none."""
        text = result.final_message
        if text is None:
            return _with_output(result, None, "the model said nothing")
        try:
            return _with_output(result, self.model.model_validate_json(text), None)
        except ValidationError as error:
            return _with_output(result, None, f"{error}\nthe final message was: {text[:LONGEST_ECHO]}")


def parsed_json(result: TurnResult[None]) -> TurnResult[Json]:
    """Parse the final message as plain JSON, which is not held against the schema."""
    text = result.final_message or ""
    try:
        return _with_output(result, json.loads(text), None)
    except ValueError as error:
        return _with_output(result, None, f"{error}\nthe final message was: {text[:LONGEST_ECHO]}")


def _with_output(result: TurnResult[None], parsed: T | None, invalid: str | None) -> TurnResult[T]:
    return TurnResult(
        result.turn_id, result.status, result.items, result.usage, result.error, parsed, invalid
    )


def strict(schema: Json) -> Json:
    """Return the schema as providers require it: objects name all of their properties as required, and allow no others.

    A property with a default is required, too; the model then writes its value.
    """
    if not isinstance(schema, Mapping):
        return schema  # true and false are schemas
    made: dict[str, Json] = {}
    for key, value in schema.items():
        if key in SCHEMAS_BY_NAME and isinstance(value, Mapping):
            made[key] = {name: strict(each) for name, each in value.items()}
        elif key in LISTS_OF_SCHEMAS and isinstance(value, list):
            made[key] = [strict(each) for each in value]
        elif key in SCHEMAS:
            made[key] = strict(value)
        elif key != "default":
            made[key] = value
    if made.get("type") == "object" and "properties" in made:
        made |= {"required": [*made["properties"]], "additionalProperties": False}
    return made
