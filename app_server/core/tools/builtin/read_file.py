"""`read_file`: numbered lines of a file: a slice, or the block that a line belongs to."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import ToolArguments, Whole, function_tool, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn
from app_server.core.tools.reading import absolute, positive, read_text

LINES = 2000


class Mode(StrEnum):
    SLICE = "slice"
    INDENTATION = "indentation"


class BlockArguments(ToolArguments):
    anchor_line: Whole | None = Field(None, description="A line of the block; the offset by default.")
    max_levels: Whole | None = Field(
        None,
        ge=0,
        description="How many enclosing blocks to go up from there; as far as it goes by default.",
    )
    include_siblings: bool | None = Field(
        None, description="Also what stands beside the block, indented like it; not by default."
    )
    include_header: bool | None = Field(
        None, description="Also comments and attributes right above the block; they are by default."
    )
    max_lines: Whole | None = Field(
        None, description="How many lines at most, those nearest to the anchor; the limit by default."
    )


class ReadFileArguments(ToolArguments):
    file_path: str = Field(description="The file's absolute path.")
    offset: Whole | None = Field(None, description="The first line, counted from 1.")
    limit: Whole | None = Field(None, description="How many lines at most; 2000 by default.")
    mode: Mode | None = Field(
        None,
        description="`slice`, the default, for the lines from offset on; `indentation` for the block that a line "
        "belongs to.",
    )
    indentation: BlockArguments | None = Field(
        None, description="What the block is, in the mode `indentation`."
    )


class ReadFileTool:
    name = "read_file"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, ReadFileArguments, "Reads lines of a text file; each comes with its number."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ReadFileArguments)
        offset = positive(arguments.offset, 1, "offset must be a 1-indexed line number")
        limit = positive(arguments.limit, LINES, "limit must be greater than zero")
        path = absolute("file_path", arguments.file_path)
        if arguments.mode is not Mode.INDENTATION:
            return await read_text("read", turn, path=path, offset=offset, limit=limit)
        block = arguments.indentation or BlockArguments()
        most = positive(block.max_lines, limit, "max_lines must be greater than zero")
        return await read_text(
            "block",
            turn,
            path=path,
            anchor=positive(block.anchor_line, offset, "anchor_line must be a 1-indexed line number"),
            levels=block.max_levels or 0,
            siblings=block.include_siblings is True,
            header=block.include_header is not False,
            limit=min(limit, most),
        )
