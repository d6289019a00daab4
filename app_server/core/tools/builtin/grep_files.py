"""`grep_files`: the files with a line that matches a pattern."""

from __future__ import annotations

import os.path

from pydantic import Field

from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import ToolArguments, Whole, function_tool, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.reading import positive, read_text

FILES, MOST_FILES = 100, 2000


class GrepFilesArguments(ToolArguments):
    pattern: str = Field(description="A regular expression, tried on each line.")
    include: str | None = Field(None, description='Only files whose name fits, such as "*.{ts,tsx}".')
    path: str | None = Field(None, description="File or folder; the working directory by default.")
    limit: Whole | None = Field(None, description="How many files at most; 100 by default.")


class GrepFilesTool:
    name = "grep_files"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name,
            GrepFilesArguments,
            "Lists the files with a line that matches, the one changed last first.",
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, GrepFilesArguments)
        if not arguments.pattern.strip():
            raise ToolFailure("pattern must not be empty")
        limit = positive(arguments.limit, FILES, "limit must be greater than zero")
        return await read_text(
            "grep",
            turn,
            pattern=arguments.pattern,
            path=os.path.normpath(os.path.join(turn.settings.cwd, arguments.path or "")),
            include=arguments.include or None,
            limit=min(limit, MOST_FILES),
        )
