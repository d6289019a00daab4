"""`read_file`: lines of a file, each behind its number."""

from __future__ import annotations

import os.path
from typing import Final

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.reading import positive, read
from protocol.base import Json

LINES = 2000

PARAMETERS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "The file's absolute path."},
        "offset": {"type": "number", "description": "The first line, counted from 1."},
        "limit": {"type": "number", "description": "How many lines at most; 2000 by default."},
    },
    "required": ["file_path"],
    "additionalProperties": False,
}

CHECKED: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string"},
        "offset": {"type": ["integer", "null"]},
        "limit": {"type": ["integer", "null"]},
    },
    "required": ["file_path"],
}
"""What is accepted: models send null for what they leave out."""


class ReadFileTool:
    name = "read_file"
    parallel = True

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Reads lines of a text file; each comes with its number.",
            parameters=PARAMETERS,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, CHECKED)
        path = arguments["file_path"]
        offset = positive(arguments, "offset", 1, "offset must be a 1-indexed line number")
        limit = positive(arguments, "limit", LINES, "limit must be greater than zero")
        if not os.path.isabs(path):
            raise ToolFailure("file_path must be an absolute path")
        return await read("read", turn, path=path, offset=offset, limit=limit)
