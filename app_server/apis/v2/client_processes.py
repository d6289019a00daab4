"""The commands that a client runs, by the client's own names for them, and what becomes of their output."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable
from dataclasses import field

import anyio

from app_server.core.exec.command import Stream
from app_server.core.exec.streamed import StreamedCommand
from app_server.rpc.errors import RpcError, invalid_request, overloaded
from app_server.rpc.outgoing import Outgoing
from protocol.records import dataclass
from protocol.v2.commands import CommandExecOutputDeltaNotification, CommandExecOutputStream

MOST = 512
"""Commands of one client at the same time."""
DEFAULT_CAP = 1 << 20
"""Bytes of each stream."""
MOST_KEPT = 32 << 20
"""Bytes of each stream that an answer has at most, whatever cap was asked for."""
MOST_QUOTED = 200
"""Characters of a name in an error."""

_STREAMS = {Stream.STDOUT: CommandExecOutputStream.STDOUT, Stream.STDERR: CommandExecOutputStream.STDERR}


@dataclass(slots=True)
class ClientProcess:
    """One command; `command` is None until it has started."""

    stdin: bool
    terminal: bool
    command: StreamedCommand | None = None
    _opened: anyio.Event = field(default_factory=anyio.Event)

    def opened(self, command: StreamedCommand | None) -> None:
        """It has started, or it will not."""
        if command is not None:
            self.command = command
        self._opened.set()

    async def wait_opened(self) -> StreamedCommand | None:
        await self._opened.wait()
        return self.command


@dataclass(slots=True)
class ClientProcesses:
    """All of one client. Those without a name count."""

    _named: dict[str, ClientProcess] = field(default_factory=dict)
    _running: int = 0

    def add(self, id: str | None, process: ClientProcess) -> None:
        """Raises RpcError. The caller removes it."""
        if id in self._named:
            raise invalid_request(
                f"duplicate active command/exec process id: {_quoted(id)}", "duplicate_process"
            )
        if self._running >= MOST:
            raise overloaded(f"{MOST} commands are running; try again")
        self._running += 1
        if id is not None:
            self._named[id] = process

    def remove(self, id: str | None) -> None:
        self._running -= 1
        if id is not None:
            del self._named[id]

    def get(self, id: str) -> ClientProcess:
        process = self._named.get(id)
        if process is None:
            raise no_process(id)
        return process

    async def started(self, id: str) -> StreamedCommand:
        """Raises RpcError where there is no such command, or it could not be started."""
        command = await self.get(id).wait_opened()
        if command is None:
            raise no_process(id)
        return command


def no_process(id: str) -> RpcError:
    return invalid_request(f"no active command/exec for process id {_quoted(id)}", "process_not_found")


def _quoted(id: str | None) -> str:
    return f'"{(id or "")[:MOST_QUOTED]}"'


class KeptOutput:
    """The first bytes of each stream, for the answer."""

    def __init__(self, cap: int | None) -> None:
        self._cap = MOST_KEPT if cap is None else min(cap, MOST_KEPT)
        self._kept = {stream: bytearray() for stream in Stream}
        self._cut: set[Stream] = set()

    async def take(self, stream: Stream, chunk: bytes) -> None:
        kept = self._kept[stream]
        left = self._cap - len(kept)
        kept += chunk[:left]
        if len(chunk) > left:
            self._cut.add(stream)

    def text(self, stream: Stream) -> str:
        """A character that the cap cut in two is left out."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(bytes(self._kept[stream]), final=stream not in self._cut)


class StreamedOutput:
    """Output as notifications, no faster than the client reads. After the cap the rest is dropped."""

    def __init__(
        self,
        id: str,
        cap: int | None,
        outgoing: Outgoing,
        notify: Callable[[CommandExecOutputDeltaNotification], None],
    ) -> None:
        self._id, self._outgoing, self._notify = id, outgoing, notify
        self._left: dict[Stream, int | None] = dict.fromkeys(Stream, cap)
        self._ended: set[Stream] = set()

    async def take(self, stream: Stream, chunk: bytes) -> None:
        if stream in self._ended:
            return
        left = self._left[stream]
        reached = left is not None and len(chunk) >= left
        if left is not None:
            chunk = chunk[:left]
            self._left[stream] = left - len(chunk)
        if reached:
            self._ended.add(stream)
        await self._outgoing.wait_for_capacity()
        self._notify(
            CommandExecOutputDeltaNotification(
                process_id=self._id,
                stream=_STREAMS[stream],
                delta_base64=base64.b64encode(chunk).decode(),
                cap_reached=reached,
            )
        )
