"""The JSON Schema that a client wants the final answer to follow: is it one?

Some providers refuse what is no schema, with a text of their own; others pass it over and answer as they like. Here the
client is sent the place before a model is asked. Answers are not checked: a schema decides how long that takes.
"""

from __future__ import annotations

from collections.abc import Callable

from app_server.core.errors import CoreError, retry_hint
from app_server.core.lazy import Lazy
from app_server.core.threads import run_in_thread
from protocol.base import Json


class NotASchema(CoreError):
    """The turn is not begun: what its answer should follow is no JSON Schema."""


async def check_schema(schema: Json) -> None:
    """Raise NotASchema with the place of what is wrong, and CoreError where it cannot be checked now."""
    try:
        problem = await run_in_thread(_problem, schema, abandon_on_cancel=True)
    except OSError as error:
        reason = f"{error.strerror}{retry_hint(error.errno)}"
        raise CoreError(f"the output schema cannot be checked: {reason}") from error
    if problem is not None:
        raise NotASchema(f"the output schema is not a JSON Schema: {problem}")


def _load_schema_problem() -> Callable[[Json], str | None]:
    from app_server.core.session.schema_problem import schema_problem  # noqa: PLC0415 - slow to import

    return schema_problem


_SCHEMA_PROBLEM = Lazy(_load_schema_problem)


def _problem(schema: Json) -> str | None:
    """Takes a while the first time: the library is loaded."""
    return _SCHEMA_PROBLEM.get()(schema)
