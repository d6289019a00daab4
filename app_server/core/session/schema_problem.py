"""Whether a value is a JSON Schema, with the library `jsonschema`, which is slow to import: see `output_schema`."""

from __future__ import annotations

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import validator_for
from pydantic_core import to_json

from protocol.base import Json

LONGEST = 1 << 18
"""Bytes of a schema that is looked at. A longer one is for the provider to judge."""
MAX_QUOTED = 200


def schema_problem(schema: Json) -> str | None:
    """None: it is one, or cannot be judged here. Nothing that the schema refers to is fetched."""
    if not isinstance(schema, dict):
        return "$: expected an object"
    try:
        if len(to_json(schema)) > LONGEST:
            return None
        named = isinstance(schema.get("$schema"), str)
        kind = validator_for(schema, default=Draft202012Validator) if named else Draft202012Validator
        kind.check_schema(schema)
    except SchemaError as error:
        message = error.message
        return f"{error.json_path}: {message if len(message) <= MAX_QUOTED else message[:MAX_QUOTED] + '…'}"
    except (RecursionError, ValueError):
        return None  # nested too deeply, or no text: also for the provider to judge
    return None
