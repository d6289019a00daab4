"""The program that validates a JSON value against a JSON Schema, in a process of its own: a pattern may backtrack
endlessly, and only the end of its process interrupts a match. `schema_match` starts it.

It reads `{"schema", "text"}` on stdin and prints `{"problem"}`, null if the text matches. Its argument is its limit of
processor time, in seconds: the kernel then ends it, even if its parent is gone.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence

import jsonschema
import referencing
import referencing.exceptions


def main(arguments: Sequence[str]) -> int:
    seconds = int(arguments[0])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    asked = json.load(sys.stdin.buffer)
    json.dump({"problem": problem_of(asked["schema"], asked["text"])}, sys.stdout)
    return 0


def problem_of(schema: object, text: str) -> str | None:
    """Return the predicate of a sentence that says why a text does not follow a schema; None if it does."""
    try:
        nothing_is_fetched: referencing.Registry[object] = referencing.Registry()
        jsonschema.validate(json.loads(text), schema, registry=nothing_is_fetched)  # type: ignore[arg-type]
    except RecursionError:
        return "is nested too deeply"
    except ValueError as error:
        return f"is not JSON: {error}"
    except (jsonschema.SchemaError, referencing.exceptions.Unresolvable) as error:
        return f"cannot be held against the schema, which cannot be used: {error}"
    except jsonschema.ValidationError as error:
        return f"does not match the schema at {error.json_path}: {error.message}"
    return None
