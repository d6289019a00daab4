"""The JSON Schema that a client wants the final answer to follow: is it one?

Some providers refuse what is no schema, with a text of their own; others pass it over and answer as they like. Here the
client is sent the place before a model is asked. Answers are not checked: a schema decides how long that takes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pydantic_core import to_json

from app_server.core.errors import CoreError, retry_hint
from app_server.core.lazy import Lazy
from app_server.core.threads import run_in_thread
from protocol.structs import Json

LONGEST = 1 << 18
"""Bytes of a schema that is looked at. A longer one is for the provider to judge."""
MAX_QUOTED = 200

_JSONSCHEMA: Lazy[Any] = Lazy(lambda: import_module("jsonschema"))
"""Takes a while to import."""


class NotASchema(CoreError):
    """The turn is not begun: what its answer should follow is no JSON Schema."""


async def check_schema(schema: Json) -> None:
    """Raise NotASchema with the place of what is wrong, and CoreError where it cannot be checked now."""
    try:
        problem = await run_in_thread(schema_problem, schema, abandon_on_cancel=True)
    except OSError as error:
        reason = f"{error.strerror}{retry_hint(error.errno)}"
        raise CoreError(f"the output schema cannot be checked: {reason}") from error
    if problem is not None:
        raise NotASchema(f"the output schema is not a JSON Schema: {problem}")


def schema_problem(schema: Json) -> str | None:
    """Return what is wrong with a schema; None where it is one, or cannot be judged here. Nothing that it refers to is
    fetched. Slow: use a thread.
    """
    library = _JSONSCHEMA.get()
    if not isinstance(schema, dict):
        return "$: expected an object"
    try:
        if len(to_json(schema)) > LONGEST:
            return None
        named = isinstance(schema.get("$schema"), str)
        kind, find = library.Draft202012Validator, library.validators.validator_for
        (find(schema, default=kind) if named else kind).check_schema(schema)
    except library.SchemaError as error:
        message = error.message
        return f"{error.json_path}: {message if len(message) <= MAX_QUOTED else message[:MAX_QUOTED] + '…'}"
    except (RecursionError, ValueError):
        return None  # nested too deeply, or no text: also for the provider to judge
    return None
