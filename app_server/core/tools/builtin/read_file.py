"""`read_file`: lines of a file, each behind its number: a slice of them, or what belongs to one of them."""

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
        "mode": {
            "type": "string",
            "description": "`slice`, the default, for the lines from offset on; `indentation` for the block that "
            "a line belongs to.",
        },
        "indentation": {
            "type": "object",
            "description": "What the block is, in the mode `indentation`.",
            "properties": {
                "anchor_line": {
                    "type": "number",
                    "description": "A line of the block; the offset by default.",
                },
                "max_levels": {
                    "type": "number",
                    "description": "How many enclosing blocks to go up from there; as far as it goes by default.",
                },
                "include_siblings": {
                    "type": "boolean",
                    "description": "Also what stands beside the block, indented like it; not by default.",
                },
                "include_header": {
                    "type": "boolean",
                    "description": "Also comments and attributes right above the block; they are by default.",
                },
                "max_lines": {
                    "type": "number",
                    "description": "How many lines at most, those nearest to the anchor; the limit by default.",
                },
            },
            "additionalProperties": False,
        },
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
        "mode": {"enum": ["slice", "indentation", None]},
        "indentation": {
            "type": ["object", "null"],
            "properties": {
                "anchor_line": {"type": ["integer", "null"]},
                "max_levels": {"type": ["integer", "null"], "minimum": 0},
                "include_siblings": {"type": ["boolean", "null"]},
                "include_header": {"type": ["boolean", "null"]},
                "max_lines": {"type": ["integer", "null"]},
            },
        },
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
        if arguments.get("mode") != "indentation":
            return await read("read", turn, path=path, offset=offset, limit=limit)
        block = arguments.get("indentation") or {}
        most = positive(block, "max_lines", limit, "max_lines must be greater than zero")
        return await read(
            "block",
            turn,
            path=path,
            anchor=positive(block, "anchor_line", offset, "anchor_line must be a 1-indexed line number"),
            levels=int(block.get("max_levels") or 0),
            siblings=block.get("include_siblings") is True,
            header=block.get("include_header") is not False,
            limit=min(limit, most),
        )
