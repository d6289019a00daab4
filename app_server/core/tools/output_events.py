"""A command's output as events: while it runs, in base64 and capped in number, and at its end, as text. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable

from app_server.core.context.output import command_output
from app_server.core.exec.command import ExecResult, Stream
from protocol.events.commands import (
    Duration,
    ExecCommandEndEvent,
    ExecCommandOutputDeltaEvent,
    ExecOutputStream,
)
from protocol.events.msg import EventMsg

MAX_DELTAS = 10_000
"""Events of one command's output; the reference stops there too. The end event has head and tail of everything."""
MAX_BYTES = 16 << 20
"""And so much output in them: a listener that is slow must not cost us the memory of a command that is not."""

_STREAMS = {Stream.STDOUT: ExecOutputStream.STDOUT, Stream.STDERR: ExecOutputStream.STDERR}


class OutputDeltas:
    """Tells of output as it comes."""

    def __init__(
        self,
        call_id: str,
        emit: Callable[[EventMsg], None],
        most: int = MAX_DELTAS,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        self._call_id, self._emit, self._left, self._left_bytes = call_id, emit, most, most_bytes

    def take(self, stream: Stream, data: bytes) -> None:
        if self._left <= 0 or self._left_bytes <= 0:
            return
        data = data[: self._left_bytes]
        self._left -= 1
        self._left_bytes -= len(data)
        chunk = base64.b64encode(data).decode("ascii")
        self._emit(ExecCommandOutputDeltaEvent(call_id=self._call_id, stream=_STREAMS[stream], chunk=chunk))


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def command_end(call_id: str, result: ExecResult) -> ExecCommandEndEvent:
    """The end of a command that ran."""
    aggregated = decode(result.aggregated)
    return ExecCommandEndEvent(
        call_id=call_id,
        stdout=decode(result.stdout),
        stderr=decode(result.stderr),
        aggregated_output=aggregated,
        exit_code=result.exit_code,
        duration=Duration.from_seconds(result.duration_s),
        formatted_output=command_output(aggregated, timed_out=result.timed_out, seconds=result.duration_s),
    )


def failed_end(call_id: str, text: str, seconds: float) -> ExecCommandEndEvent:
    """The end of a command that was not run, or not to an end we know."""
    return ExecCommandEndEvent(
        call_id=call_id,
        stdout="",
        stderr=text,
        aggregated_output=text,
        exit_code=-1,
        duration=Duration.from_seconds(seconds),
        formatted_output=text,
    )
