"""The tools that read files for the model: `read_file`, `list_dir`, `grep_files` and `view_image`.

They read with the rights of a command: a process inside the turn's sandbox, with a time limit. If the server itself
read, it could read files that commands must not see, and could not end a read that hangs.
"""

from __future__ import annotations

import json
import os.path
import sys
from collections.abc import Mapping
from functools import partial

from app_server.engine.context.text_for_model import shorten
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult, OnOutput
from app_server.engine.sandbox.plan import for_own_program
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.support.helpers import reader_command
from app_server.engine.support.images import MAX_IMAGE_BYTES, ImageUnreadable, data_url
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools import tool_schemas
from app_server.engine.tools.rights import confinement
from app_server.engine.tools.tool_base import ToolCall, ToolContext, ToolFailure, ToolOutput, text_output
from app_server.engine.tools.tool_events import decode
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.engine.items import ImageView
from app_server_protocol.responses import FunctionCallOutputPayload, InputImage, MessageItem

TIMEOUT_MS = 30_000


async def read_text(do: str, turn: ToolContext, **request: Json) -> ToolOutput:
    """Return the reader's output as text. Raises ToolFailure with the reader's error."""
    result = await _run_reader(do, turn, lambda stream, chunk: None, request)
    return text_output(shorten(decode(result.stdout), turn.output_limit))


async def read_bytes(do: str, turn: ToolContext, **request: Json) -> bytes:
    """Return the reader's output as bytes; the request limits its size. Raises ToolFailure as `read_text` does."""
    pieces: list[bytes] = []

    def keep(stream: ExecOutputStream, chunk: bytes) -> None:
        if stream is ExecOutputStream.STDOUT:
            pieces.append(chunk)

    await _run_reader(do, turn, keep, request)
    return b"".join(pieces)


async def _run_reader(
    do: str, turn: ToolContext, on_output: OnOutput, request: Mapping[str, Json]
) -> ExecResult:
    try:
        spec = CommandSpec(
            argv=(*reader_command(sys.executable), json.dumps({"do": do, **request})),
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            timeout_ms=TIMEOUT_MS,
            sandbox=for_own_program(await confinement(turn)),
        )
        result = await turn.commands.runner.run(spec, on_output)
    except CoreError as error:
        raise ToolFailure(str(error)) from error
    if result.timed_out:
        raise ToolFailure(f"it took longer than {TIMEOUT_MS // 1000} seconds; ask for less")
    if result.exit_code != 0:
        raise ToolFailure(
            shorten(decode(result.stderr), turn.output_limit) or f"the reader ended with {result.exit_code}"
        )
    return result


def positive(given: int | None, default: int, problem: str) -> int:
    """Return the model's number, or the default if it is None. Raises ToolFailure if it is below 1."""
    value = default if given is None else given
    if value < 1:
        raise ToolFailure(problem)
    return value


def absolute(name: str, path: str) -> str:
    """Return the path that the model gave as the argument `name`. Raises ToolFailure if the path is relative."""
    if not os.path.isabs(path):
        raise ToolFailure(f"{name} must be an absolute path")
    return path


LINES = 2000
ENTRIES, DEPTH = 25, 2
FILES, MOST_FILES = 100, 2000


async def invoke(call: ToolCall, turn: ToolContext) -> ToolOutput:
    """Serve a call of one of the tools of this module."""
    match call.name:
        case "read_file":
            return await _read_file(
                tool_schemas.parse_arguments(call.arguments, tool_schemas.ReadFileArguments), turn
            )
        case "list_dir":
            return await _list_dir(
                tool_schemas.parse_arguments(call.arguments, tool_schemas.ListDirArguments), turn
            )
        case "grep_files":
            return await _grep_files(
                tool_schemas.parse_arguments(call.arguments, tool_schemas.GrepFilesArguments), turn
            )
        case "view_image":
            return await _view_image(call, turn)
        case name:
            raise ToolFailure(f"{name} is not served")


async def _read_file(arguments: tool_schemas.ReadFileArguments, turn: ToolContext) -> ToolOutput:
    offset = positive(arguments.offset, 1, "offset must be a 1-indexed line number")
    limit = positive(arguments.limit, LINES, "limit must be greater than zero")
    path = absolute("file_path", arguments.file_path)
    if arguments.mode is not tool_schemas.Mode.INDENTATION:
        return await read_text("read", turn, path=path, offset=offset, limit=limit)
    block = arguments.indentation or tool_schemas.BlockArguments()
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


async def _list_dir(arguments: tool_schemas.ListDirArguments, turn: ToolContext) -> ToolOutput:
    offset = positive(arguments.offset, 1, "offset must be a 1-indexed entry number")
    limit = positive(arguments.limit, ENTRIES, "limit must be greater than zero")
    depth = positive(arguments.depth, DEPTH, "depth must be greater than zero")
    path = absolute("dir_path", arguments.dir_path)
    return await read_text("list", turn, path=path, offset=offset, limit=limit, depth=depth)


async def _grep_files(arguments: tool_schemas.GrepFilesArguments, turn: ToolContext) -> ToolOutput:
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


async def _view_image(call: ToolCall, turn: ToolContext) -> ToolOutput:
    arguments = tool_schemas.parse_arguments(call.arguments, tool_schemas.ViewImageArguments)
    path = os.path.join(turn.settings.cwd, arguments.path)
    # The path is resolved as for commands: from the real path that the directory had when the conversation began using
    # it.
    real = os.path.join(turn.commands.roots.real(turn.settings.cwd), arguments.path)
    data = await read_bytes("image", turn, path=real, most=MAX_IMAGE_BYTES)
    try:
        url = await run_in_thread(partial(data_url, checksums=turn.strictness.pictures), data)
    except ImageUnreadable as error:
        raise ToolFailure(f"unable to read image at `{path}`: {error}") from error
    turn.items.show(ImageView(call.call_id, path))
    payload = FunctionCallOutputPayload(content="attached local image path", success=True)
    image = MessageItem(role="user", content=(InputImage(image_url=url),))
    return ToolOutput(payload, (image,))
