"""The launcher's report on a command, read from the command's channel."""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
from typing import Any, Literal

from app_server.core.errors import SHORTAGES, retry_hint
from app_server.core.launcher import descendants, wire
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    kind: Literal["exit", "failed", "unavailable"]
    """The command ran; it could not be executed; its sandbox could not be built."""
    code: int
    """The exit status, negative for a signal; or an errno."""
    detail: str | bool = ""


KILLED = Report("exit", -signal.SIGKILL)
"""Used if the supervisor was killed after it had started the command."""

NEVER_STARTED = Report("failed", errno.ECHILD)
"""Used if the supervisor was killed before it had started the command."""


class ReportReader:
    """Reads messages of a supervisor. If the channel ends without a report, the supervisor was killed, and the reader
    kills its command."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._unparsed = bytearray()
        self._leader: int | None = None
        """The command's pid once it has started; 0 inside namespaces, where no process outlives the supervisor."""
        self._report: Report | None = None

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
            part = self._channel.recv(4096)
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
    """Why a program could not be executed, in the text that clients of this protocol match."""
    if code == errno.ECHILD:
        return "the process that should start the command has ended; try again"
    if code in SHORTAGES:
        return f"{os.strerror(code)}{retry_hint(code)}"
    kinds = {errno.ENOENT: "NotFound", errno.EACCES: "PermissionDenied", errno.ENOTDIR: "NotADirectory"}
    return (
        f'Io(Os {{ code: {code}, kind: {kinds.get(code, "Uncategorized")}, message: "{os.strerror(code)}" }})'
    )


def unavailable_error(report: Report) -> str:
    """Why the sandbox of a command could not be built."""
    return f"the sandbox for this command cannot be built: {report.detail}{retry_hint(report.code)}"
