"""Structured output: a pydantic model or a JSON Schema for the request, the final message as an instance of it.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from app_server.client.failures import OutputInvalid
from app_server.client.turn_progress import TurnResult
from protocol.base import Json
from protocol.records import dataclass

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OutputModel(Generic[M]):
    """What the final message has to be."""

    model: type[M]

    def schema(self) -> Json:
        return strict(self.model.model_json_schema())

    def parsed(self, result: TurnResult[None]) -> TurnResult[M]:
        """The result with its output, or with the reason why there is none."""
        text = result.final_message
        if not result.completed or text is None:
            return _with_output(result, None, OutputInvalid("the model said nothing"))
        try:
            return _with_output(result, self.model.model_validate_json(text), None)
        except ValidationError as error:
            return _with_output(result, None, OutputInvalid(f"{error}\nthe final message was: {text[:2000]}"))


def parsed_json(result: TurnResult[None]) -> TurnResult[Json]:
    """The same for a schema without a model: the output is plain JSON."""
    try:
        return _with_output(result, json.loads(result.final_message or ""), None)
    except ValueError as error:
        return _with_output(result, None, OutputInvalid(f"the final message is no JSON: {error}"))


M2 = TypeVar("M2")


def _with_output(result: TurnResult[None], parsed: M2 | None, invalid: Exception | None) -> TurnResult[M2]:
    return TurnResult(
        result.turn_id, result.status, result.items, result.usage, result.error, parsed, invalid
    )


def strict(schema: Json) -> Json:
    """The schema as providers require it: every object names all of its properties as required, and allows no others.

    A property with a default is required, too; the model then writes its value.
    """
    match schema:
        case Mapping():
            made = {key: strict(value) for key, value in schema.items() if key != "default"}
            if made.get("type") == "object" and isinstance(made.get("properties"), Mapping):
                made |= {"required": [*made["properties"]], "additionalProperties": False}
            return made
        case list():
            return [strict(each) for each in schema]
        case _:
            return schema
