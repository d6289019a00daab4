"""The schema of `--output-schema`: whether it is one, and whether the final message follows it. Slow to import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import jsonschema
import referencing
import referencing.exceptions

from app_server.client.command_line import InvalidCommandLine
from app_server.core.session.user_input import schema_problem
from app_server_protocol.structs import Json


class OutputSchema:
    """A JSON Schema."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from a file. Raises InvalidCommandLine."""
        try:
            schema = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidCommandLine(f"--output-schema: {path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidCommandLine(f"--output-schema: {path} is not JSON: {error}") from None
        if (problem := schema_problem(schema)) is not None:
            raise InvalidCommandLine(f"--output-schema: {path} is not a JSON Schema: {problem}")
        return cls(schema)

    def mismatch(self, message: str) -> str | None:
        """Return why the final message does not follow the schema, None where it does."""
        try:
            nothing_is_fetched = referencing.Registry()
            jsonschema.validate(json.loads(message), self.schema, registry=nothing_is_fetched)
        except (ValueError, RecursionError) as error:
            return f"the final message is not JSON: {error}"
        except (jsonschema.SchemaError, referencing.exceptions.Unresolvable) as error:
            return f"the output schema cannot be used: {error}"
        except jsonschema.ValidationError as error:
            return f"the final message does not match the output schema at {error.json_path}: {error.message}"
        return None
