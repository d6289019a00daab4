"""The tools that read for the model: `read_file`, `list_dir`, `grep_files` and `view_image`.

They read with the rights of a command: a process inside the turn's sandbox, with a time limit. The server itself could
read files that commands must not see, and could not end a read that hangs.
"""

from __future__ import annotations

import json
import os.path
import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import partial

from pydantic import Field

from app_server.core.context.images import MAX_IMAGE_BYTES
from app_server.core.context.text_for_model import shorten
from app_server.core.errors import CoreError
from app_server.core.exec.command import CommandSpec, ExecResult, OnOutput, Stream
from app_server.core.files import model_reads
from app_server.core.model.prompt import ToolSpec
from app_server.core.pictures import ImageUnreadable, data_url
from app_server.core.threads import run_in_thread
from app_server.core.tools.arguments import ToolArguments, Whole, function_tool, parse_arguments
from app_server.core.tools.confinement import confinement
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from app_server.core.tools.events import decode
from protocol.base import Json
from protocol.engine.items import ImageView
from protocol.responses import FunctionCallOutputPayload, InputImage, MessageItem

TIMEOUT_MS = 30_000


async def read_text(do: str, turn: ToolTurn, **request: Json) -> ToolOutput:
    """The reader's output as text. Raises ToolFailure with the reader's error."""
    result = await _run_reader(do, turn, lambda stream, chunk: None, request)
    return text_output(shorten(decode(result.stdout)))


async def read_bytes(do: str, turn: ToolTurn, **request: Json) -> bytes:
    """The reader's output as bytes; the request limits its size. Raises ToolFailure as `read_text` does."""
    pieces: list[bytes] = []

    def keep(stream: Stream, chunk: bytes) -> None:
        if stream is Stream.STDOUT:
            pieces.append(chunk)

    await _run_reader(do, turn, keep, request)
    return b"".join(pieces)


async def _run_reader(
    do: str, turn: ToolTurn, on_output: OnOutput, request: Mapping[str, Json]
) -> ExecResult:
    try:
        spec = CommandSpec(
            argv=(sys.executable, "-I", "-S", model_reads.__file__, json.dumps({"do": do, **request})),
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            timeout_ms=TIMEOUT_MS,
            sandbox=await confinement(turn),
        )
        result = await turn.commands.runner.run(spec, on_output)
    except CoreError as error:
        raise ToolFailure(str(error)) from error
    if result.timed_out:
        raise ToolFailure(f"it took longer than {TIMEOUT_MS // 1000} seconds; ask for less")
    if result.exit_code != 0:
        raise ToolFailure(shorten(decode(result.stderr)) or f"the reader ended with {result.exit_code}")
    return result


def positive(given: int | None, default: int, problem: str) -> int:
    """The model's number, or the default. Raises ToolFailure if it is below 1."""
    value = default if given is None else given
    if value < 1:
        raise ToolFailure(problem)
    return value


def absolute(name: str, path: str) -> str:
    """The path that the model gave as the argument `name`. Raises ToolFailure if it is relative."""
    if not os.path.isabs(path):
        raise ToolFailure(f"{name} must be an absolute path")
    return path


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


class ViewImageArguments(ToolArguments):
    path: str = Field(description="The file; relative to the working directory.")


class ViewImageTool:
    name = "view_image"
    parallel = True

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, ViewImageArguments, "Attaches an image file, so that you can look at it."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ViewImageArguments)
        path = os.path.join(turn.settings.cwd, arguments.path)
        # Commands use the same directory: the one that the name led to when the conversation got it.
        real = os.path.join(turn.commands.roots.real(turn.settings.cwd), arguments.path)
        data = await read_bytes("image", turn, path=real, most=MAX_IMAGE_BYTES)
        try:
            url = await run_in_thread(partial(data_url, checksums=turn.strict_pictures), data)
        except ImageUnreadable as error:
            raise ToolFailure(f"unable to read image at `{path}`: {error}") from error
        turn.items.show(ImageView(call.call_id, path))
        payload = FunctionCallOutputPayload(content="attached local image path", success=True)
        image = MessageItem(role="user", content=(InputImage(image_url=url),))
        return ToolOutput(payload, (image,))
