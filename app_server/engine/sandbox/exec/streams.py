"""Data between the server and a running command: input, kept output, the launcher's report, and resource usage.

Writes wait until the command reads, in their order; the amount of waiting data is bounded. They end when the command
does. Head and tail of the output are kept; one line replaces the middle and gives its size. Resource usage is read from
/proc, and is not known on a system that has no such files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import marshal
import os
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.sandbox.exec.command import SIGNAL_EXIT_BASE
from app_server.engine.sandbox.launcher import descendants, launcher_wire
from app_server.engine.support.engine_errors import (
    SHORTAGES,
    InputClosed,
    InputFull,
    LaunchError,
    SandboxUnavailable,
    retry_hint,
)

READ_SIZE = 1 << 18
F_SETPIPE_SZ = 1031
"""Command of fcntl(2) on Linux that makes pipes as large as one read, so that large output arrives in few pieces."""


def enlarge(number: int) -> None:
    """Make a pipe as large as one read, if the system allows it."""
    with contextlib.suppress(OSError):  # another system, or the user's share of pipe memory is used up
        fcntl.fcntl(number, F_SETPIPE_SZ, READ_SIZE)


MAX_WAITING = 32 << 20
"""Maximum size of the data that waits for one command to read it, in bytes."""
NOTICE_SECONDS = 0.1
"""Interval at which a waiting write checks for the end of the command, in seconds: a terminal does not signal it."""
END_OF_INPUT = b"\x04"
"""Character that a person types at a terminal to end input. At the beginning of a line it ends the input, elsewhere the
text that was typed.
"""


class StdinWriter(Struct):
    """The input of a command. It owns the descriptor `number`."""

    number: int
    terminal: bool
    _closed: bool = False
    _waiting: int = 0
    _line_begins: bool = True
    _writing: anyio.Lock = msgspec.field(default_factory=lambda: anyio.Lock(fast_acquire=True))

    def __post_init__(self) -> None:
        os.set_blocking(self.number, False)

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Return once the command has read the data, or the system buffers it. `last` closes the input after it. Raises
        InputClosed, InputFull.
        """
        if self._waiting + len(data) > MAX_WAITING:
            raise InputFull
        self._waiting += len(data)
        try:
            async with self._writing:
                await self._write(data)
                if last and self.terminal:
                    await self._write(END_OF_INPUT if self._line_begins else END_OF_INPUT * 2)
                self._closed = self._closed or (last and not self.terminal)
        finally:
            self._waiting -= len(data)
            if self._closed:
                self.abandon()

    def abandon(self) -> None:
        """Close the input. Waiting data is lost."""
        self._closed = True
        if not self._writing.locked():  # otherwise the writing task does it, as soon as it notices
            number, self.number = self.number, -1
            if number >= 0:
                os.close(number)

    async def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            if self._closed:
                raise InputClosed
            if not rest:
                break
            try:
                rest = rest[os.write(self.number, rest) :]
            except BlockingIOError:
                with anyio.move_on_after(NOTICE_SECONDS):
                    await anyio.wait_writable(self.number)
            except OSError as error:  # no process has the other end open
                raise InputClosed from error
        if data:
            self._line_begins = data.endswith((b"\n", b"\r", END_OF_INPUT))


STREAM_CAP = 1 << 20
"""Maximum size of kept output of each stream, and of both together, in bytes: half from the start, half from the
end.
"""


class HeadTail:
    """The first and the last half of `cap` bytes of a stream."""

    __slots__ = ("_half", "_head", "_head_left", "_tail", "_tail_size", "total")

    def __init__(self, cap: int = STREAM_CAP) -> None:
        self.total = 0
        self._half = max(cap // 2, 1)
        self._head: list[bytes] = []
        self._head_left = self._half
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        if self._head_left:
            part, chunk = chunk[: self._head_left], chunk[self._head_left :]
            self._head.append(part)
            self._head_left -= len(part)
        if not chunk:
            return
        self._tail.append(chunk[-self._half :])
        self._tail_size += len(self._tail[-1])
        while self._tail_size - len(self._tail[0]) >= self._half:
            self._tail_size -= len(self._tail.popleft())

    def value(self) -> bytes:
        """Return all output if it fits, otherwise head, a line about the gap, and tail."""
        head = b"".join(self._head)
        tail = b"".join(self._tail)[-self._half :]
        omitted = self.total - len(head) - len(tail)
        if omitted <= 0:
            return head + tail
        return b"%b\n[... %d bytes omitted ...]\n%b" % (head, omitted, tail)


class ProcessUsage(Struct, frozen=True):
    pid: int
    """Pid of the command's own process."""
    cpu_seconds: float
    """CPU time of all its processes, and of those that they waited for, in seconds."""
    rss_kb: int
    age_seconds: float
    """Time since the command's own process began, in seconds."""


class CommandRoot(Struct, frozen=True):
    """The root of a command's process tree."""

    pid: int
    is_supervisor: bool
    """Whether it is a supervisor: a process that is not one of the command's own, but has all of them below it."""


class _Process(Struct, frozen=True):
    cpu_seconds: float
    rss_kb: int
    begin_seconds: float
    """Begin of the process, in seconds since the system started."""


def usage_of(root: CommandRoot, table: dict[int, int]) -> ProcessUsage | None:
    """Return the total resource usage of a process tree. `table` has the parent of every process, as returned by
    `descendants.listed`. Blocks.
    """
    own, below = root.pid, descendants.below(root.pid, table)
    found = {pid: each for pid in (own, *below) if (each := _read(pid))}
    if root.is_supervisor:
        found.pop(own, None)
        # The supervisor's first child is the command; later ones are orphans of the command.
        children = [pid for pid in found if table.get(pid) == root.pid]
        own = min(children, key=lambda pid: found[pid].begin_seconds, default=own)
    uptime = _uptime()
    if own not in found or uptime is None:
        return None
    return ProcessUsage(
        own,
        sum(each.cpu_seconds for each in found.values()),
        sum(each.rss_kb for each in found.values()),
        max(uptime - found[own].begin_seconds, 0.0),
    )


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return _Process(
            cpu_seconds=sum(int(each) for each in fields[11:15]) / tick,
            rss_kb=int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024,
            begin_seconds=int(fields[19]) / tick,
        )
    except (OSError, ValueError, IndexError):
        return None


def _uptime() -> float | None:
    try:
        with open("/proc/uptime", "rb") as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None


class Report(Struct, frozen=True):
    kind: Literal["exit", "failed", "unavailable"]
    """Outcome: the command ran; it could not be executed; its sandbox could not be built."""
    code: int
    """Exit status, negative for a signal; or an errno."""
    detail: str | bool = ""

    @property
    def exit_code(self) -> int:
        """The exit code as shells report it."""
        return self.code if self.code >= 0 else SIGNAL_EXIT_BASE - self.code

    def check(self) -> None:
        """Raise LaunchError or SandboxUnavailable if nothing ran."""
        if self.kind == "failed":
            raise LaunchError(execution_error(self.code), self.code)
        if self.kind == "unavailable":
            text = f"the sandbox for this command cannot be built: {self.detail}{retry_hint(self.code)}"
            raise SandboxUnavailable(text, self.code)


KILLED = Report("exit", -signal.SIGKILL)
"""The report that is used if the supervisor was killed after it had started the command."""

NEVER_STARTED = Report("failed", errno.ECHILD)
"""The report that is used if the supervisor was killed before it had started the command."""


SENDER_SPACE = socket.CMSG_SPACE(12)
_SENDER = struct.Struct("iII")


def _sender(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    if sys.platform == "linux":
        for level, kind, data in ancillary:
            if (level, kind, len(data)) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, _SENDER.size):
                pid: int = _SENDER.unpack(data)[0]
                return pid or None
    return None


class ReportReader:
    """Reads messages of a supervisor. If the channel ends without a report, the supervisor was killed, and the reader
    kills its command."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._unparsed = bytearray()
        self._leader: int | None = None
        """Pid of the command once it has started; 0 inside namespaces, where no process outlives the supervisor."""
        self._report: Report | None = None
        self._sender: int | None = None
        """Pid of the supervisor. None if the channel does not name senders."""
        if sys.platform == "linux":  # messages then arrive with the pid of their sender
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    @property
    def root(self) -> CommandRoot | None:
        """The root of the process tree of a command that has started. None if it is not known."""
        if self._leader:
            return CommandRoot(self._leader, is_supervisor=False)
        started_inside = self._leader == 0 and self._sender
        return CommandRoot(self._sender or 0, is_supervisor=True) if started_inside else None

    @property
    def started(self) -> bool:
        """Whether the command has started; it may have ended since."""
        return self._leader is not None

    def read_report(self) -> Report | None:
        """Read the available messages. Return the report once it is complete."""
        if self._report is None:
            self._report = self._read()
        return self._report

    def _read(self) -> Report | None:
        try:
            part, ancillary, _, _ = self._channel.recvmsg(4096, SENDER_SPACE)
            self._sender = self._sender or _sender(ancillary)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            part = b""
        self._unparsed += part
        while (message := self._message()) is not None:
            if message[0] != "started":
                return Report(*message)
            self._leader = message[1]
        return None if part else self._ended()

    def _message(self) -> tuple[Any, ...] | None:
        size = launcher_wire.LENGTH + int.from_bytes(self._unparsed[: launcher_wire.LENGTH], "big")
        if not launcher_wire.LENGTH < size <= len(self._unparsed):
            return None
        body = bytes(self._unparsed[launcher_wire.LENGTH : size])
        del self._unparsed[:size]
        message: tuple[Any, ...] = marshal.loads(body)
        return message

    def _ended(self) -> Report:
        if self._leader is None:
            return NEVER_STARTED
        if self._leader:
            descendants.end_tree_of(self._leader)
        return KILLED


def execution_error(code: int) -> str:
    """Return the reason why a program could not be executed, in the text that clients of this protocol match."""
    if code == errno.ECHILD:
        return "the process that should start the command has ended; try again"
    if code in SHORTAGES:
        return f"{os.strerror(code)}{retry_hint(code)}"
    if code == errno.E2BIG:
        return "the words of the command and its environment together are longer than the system takes; use a file"
    kinds = {errno.ENOENT: "NotFound", errno.EACCES: "PermissionDenied", errno.ENOTDIR: "NotADirectory"}
    return (
        f'Io(Os {{ code: {code}, kind: {kinds.get(code, "Uncategorized")}, message: "{os.strerror(code)}" }})'
    )
