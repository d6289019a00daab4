"""The schema of `--output-schema`: checks that it is a JSON Schema, and validates the final message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from app_server.cli.named_files import read_input
from app_server.client.command_line import InvalidCommandLine
from app_server.engine.session import answer_schema
from app_server.engine.support.schema_match import schema_mismatch
from app_server_protocol.encoding import Json


class OutputSchema:
    """A JSON Schema for the final message."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the schema from a file. Raises InvalidCommandLine."""
        try:
            schema = json.loads(read_input(path))
        except OSError as error:
            raise InvalidCommandLine(f"--output-schema: {path}: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidCommandLine(f"--output-schema: {path} is not JSON: {error}") from None
        if (problem := answer_schema.schema_problem(schema)) is not None:
            raise InvalidCommandLine(f"--output-schema: {path} is not a JSON Schema: {problem}")
        return cls(schema)

    async def mismatch(self, message: str) -> str | None:
        """Return the reason why the final message does not match the schema; None if it matches."""
        problem = await schema_mismatch(self.schema, message)
        return None if problem is None else f"the final message {problem}"
