"""`list_dir`: the entries of a folder, down to a depth."""

from __future__ import annotations

import os.path

from pydantic import Field

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import ToolArguments, Whole, parameters, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.reading import positive, read_text

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
        return FunctionTool(
            name=self.name,
            description="Lists a folder's entries: `/` marks folders, `@` links.",
            parameters=parameters(ListDirArguments),
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ListDirArguments)
        path = arguments.dir_path
        offset = positive(arguments.offset, 1, "offset must be a 1-indexed entry number")
        limit = positive(arguments.limit, ENTRIES, "limit must be greater than zero")
        depth = positive(arguments.depth, DEPTH, "depth must be greater than zero")
        if not os.path.isabs(path):
            raise ToolFailure("dir_path must be an absolute path")
        return await read_text("list", turn, path=path, offset=offset, limit=limit, depth=depth)
