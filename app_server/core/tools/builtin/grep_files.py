"""`grep_files`: which files have a line that matches a pattern."""

from __future__ import annotations

import os.path
from typing import Final

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.reading import positive, read
from protocol.base import Json

FILES, MOST_FILES = 100, 2000

PARAMETERS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "A regular expression, tried on each line."},
        "include": {"type": "string", "description": 'Only files whose name fits, such as "*.{ts,tsx}".'},
        "path": {"type": "string", "description": "File or folder; the working directory by default."},
        "limit": {"type": "number", "description": "How many files at most; 100 by default."},
    },
    "required": ["pattern"],
    "additionalProperties": False,
}

CHECKED: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string"},
        "include": {"type": ["string", "null"]},
        "path": {"type": ["string", "null"]},
        "limit": {"type": ["integer", "null"]},
    },
    "required": ["pattern"],
}
"""What is accepted: models send null for what they leave out."""


class GrepFilesTool:
    name = "grep_files"
    parallel = True

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Lists the files with a line that matches, the one changed last first.",
            parameters=PARAMETERS,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, CHECKED)
        if not arguments["pattern"].strip():
            raise ToolFailure("pattern must not be empty")
        limit = positive(arguments, "limit", FILES, "limit must be greater than zero")
        return await read(
            "grep",
            turn,
            pattern=arguments["pattern"],
            path=os.path.normpath(os.path.join(turn.settings.cwd, arguments.get("path") or "")),
            include=arguments.get("include") or None,
            limit=min(limit, MOST_FILES),
        )
