"""The launcher's report on a command, read from the command's channel, and what its processes use, from /proc. Where a
system has no such files, nothing is known.
"""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from app_server.core.errors import SHORTAGES, LaunchError, SandboxUnavailable, retry_hint
from app_server.core.exec.command import SIGNAL_EXIT_BASE
from app_server.core.launcher import descendants, wire


class ProcessUsage(Struct, frozen=True):
    pid: int
    """The command's own process."""
    cpu_seconds: float
    """Of all its processes, and of those that they waited for."""
    rss_kb: int
    age_seconds: float
    """Since the command's own process began."""


class CommandRoot(Struct, frozen=True):
    """Beginning of a command's tree of processes."""

    pid: int
    is_supervisor: bool
    """Of a process that is none of the command's own, but has all of them below it."""


class _Process(Struct, frozen=True):
    cpu_seconds: float
    rss_kb: int
    begin_seconds: float
    """Since the system started."""


def usage_of(root: CommandRoot, table: dict[int, int]) -> ProcessUsage | None:
    """Sum up what a tree of processes uses. `table`: the parent of every process, as `descendants.listed` has it.
    Blocks.
    """
    below = descendants.below(root.pid, table)
    found = {
        pid: each for pid in (below if root.is_supervisor else [root.pid, *below]) if (each := _read(pid))
    }
    # A supervisor's first child is the command; later ones are orphans of it.
    own = (
        min(
            (pid for pid in found if table.get(pid) == root.pid or pid == root.pid),
            key=lambda pid: found[pid].begin_seconds,
            default=None,
        )
        if root.is_supervisor
        else root.pid
    )
    uptime = _uptime()
    if own not in found or own is None or uptime is None:
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
    """The command ran; it could not be executed; its sandbox could not be built."""
    code: int
    """The exit status, negative for a signal; or an errno."""
    detail: str | bool = ""

    @property
    def exit_code(self) -> int:
        """Return the exit code as shells have it."""
        return self.code if self.code >= 0 else SIGNAL_EXIT_BASE - self.code

    def check(self) -> None:
        """Raise LaunchError or SandboxUnavailable if nothing ran."""
        if self.kind == "failed":
            raise LaunchError(execution_error(self.code), self.code)
        if self.kind == "unavailable":
            text = f"the sandbox for this command cannot be built: {self.detail}{retry_hint(self.code)}"
            raise SandboxUnavailable(text, self.code)


KILLED = Report("exit", -signal.SIGKILL)
"""Used if the supervisor was killed after it had started the command."""

NEVER_STARTED = Report("failed", errno.ECHILD)
"""Used if the supervisor was killed before it had started the command."""


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
        """The command's pid once it has started; 0 inside namespaces, where no process outlives the supervisor."""
        self._report: Report | None = None
        self._sender: int | None = None
        """The pid of the supervisor, where the channel names senders."""
        if sys.platform == "linux":  # messages that arrive come with the pid of their sender
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    @property
    def root(self) -> CommandRoot | None:
        """Return where the processes of a command that has started begin, as far as that is known."""
        if self._leader:
            return CommandRoot(self._leader, is_supervisor=False)
        started_inside = self._leader == 0 and self._sender
        return CommandRoot(self._sender or 0, is_supervisor=True) if started_inside else None

    @property
    def started(self) -> bool:
        """Whether the command has started; it may have ended since."""
        return self._leader is not None

    def read_report(self) -> Report | None:
        """Read what the channel has. Returns the report once it is complete."""
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
        size = wire.LENGTH + int.from_bytes(self._unparsed[: wire.LENGTH], "big")
        if not wire.LENGTH < size <= len(self._unparsed):
            return None
        body = bytes(self._unparsed[wire.LENGTH : size])
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
    """Say why a program could not be executed, in the text that clients of this protocol match."""
    if code == errno.ECHILD:
        return "the process that should start the command has ended; try again"
    if code in SHORTAGES:
        return f"{os.strerror(code)}{retry_hint(code)}"
    kinds = {errno.ENOENT: "NotFound", errno.EACCES: "PermissionDenied", errno.ENOTDIR: "NotADirectory"}
    return (
        f'Io(Os {{ code: {code}, kind: {kinds.get(code, "Uncategorized")}, message: "{os.strerror(code)}" }})'
    )
