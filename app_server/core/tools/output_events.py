"""A command's output while it runs, as events: bytes in base64, capped in number; and as text, decoded. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable

from app_server.core.exec.command import Stream
from protocol.events.commands import ExecCommandOutputDeltaEvent, ExecOutputStream
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
