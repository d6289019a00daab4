"""Checks the JSON Schema of a turn's final answer, since some providers ignore an invalid one. Answers are not
validated against their schema, because the schema decides how long that takes.

Imported as a module, because the library is slow to import and few turns have a schema.
"""

from __future__ import annotations

import jsonschema
from pydantic_core import to_json

from app_server.engine.support.engine_errors import CoreError, retry_hint
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.encoding import Json

LONGEST_SCHEMA = 1 << 18
"""Maximum size of a schema that is checked, in bytes. The provider validates a longer one."""
MAX_QUOTED = 200


class NotASchema(CoreError):
    """The turn does not begin: the schema of its answer is no JSON Schema."""


async def check_schema(schema: Json) -> None:
    """Raise NotASchema with the location of the error, and CoreError if the schema cannot be checked now."""
    try:
        problem = await run_in_thread(schema_problem, schema, abandon_on_cancel=True)
    except OSError as error:
        reason = f"{error.strerror}{retry_hint(error.errno)}"
        raise CoreError(f"the output schema cannot be checked: {reason}") from error
    if problem is not None:
        raise NotASchema(f"the output schema is not a JSON Schema: {problem}")


def schema_problem(schema: Json) -> str | None:
    """Return the error in a schema; None if it is valid, or cannot be checked here. References are not fetched. Slow:
    use a thread.
    """
    if not isinstance(schema, dict):
        return "$: expected an object"
    try:
        if len(to_json(schema)) > LONGEST_SCHEMA:
            return None
        named = isinstance(schema.get("$schema"), str)
        kind, find = jsonschema.Draft202012Validator, jsonschema.validators.validator_for
        (find(schema, default=kind) if named else kind).check_schema(schema)
    except jsonschema.SchemaError as error:
        message = error.message
        return f"{error.json_path}: {message if len(message) <= MAX_QUOTED else message[:MAX_QUOTED] + '…'}"
    except (RecursionError, ValueError):
        return None  # nested too deeply, or not text: the provider validates this one, too
    return None
