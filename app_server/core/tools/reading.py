"""Reads files for the model with the rights of a command: a process inside the turn's sandbox, with a time limit.

The server itself could read files that commands must not see, and could not end a read that hangs.
"""

from __future__ import annotations

import json
import os.path
import sys
from collections.abc import Mapping

from app_server.core.context.text_for_model import shorten
from app_server.core.errors import CoreError
from app_server.core.exec.command import CommandSpec, ExecResult, OnOutput, Stream
from app_server.core.files import model_reads
from app_server.core.tools.confinement import confinement
from app_server.core.tools.contract import ToolFailure, ToolOutput, ToolTurn, text_output
from app_server.core.tools.output_events import decode
from protocol.base import Json

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
