"""`list_dir`: the entries of a folder, down to a depth."""

from __future__ import annotations

from pydantic import Field

from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import ToolArguments, Whole, function_tool, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn
from app_server.core.tools.reading import absolute, positive, read_text

ENTRIES, DEPTH = 25, 2


class ListDirArguments(ToolArguments):
    dir_path: str = Field(description="The folder's absolute path.")
    offset: Whole | None = Field(None, description="The first entry, counted from 1.")
    limit: Whole | None = Field(None, description="How many entries at most; 25 by default.")
    depth: Whole | None = Field(None, description="How deep to go; 2 by default, 1 is the folder only.")


class ListDirTool:
    name = "list_dir"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, ListDirArguments, "Lists a folder's entries: `/` marks folders, `@` links."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ListDirArguments)
        offset = positive(arguments.offset, 1, "offset must be a 1-indexed entry number")
        limit = positive(arguments.limit, ENTRIES, "limit must be greater than zero")
        depth = positive(arguments.depth, DEPTH, "depth must be greater than zero")
        path = absolute("dir_path", arguments.dir_path)
        return await read_text("list", turn, path=path, offset=offset, limit=limit, depth=depth)
