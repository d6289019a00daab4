"""The launcher's last word on a command, read from its channel as it comes."""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
from typing import Literal

from app_server.core.exec import wire
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    kind: Literal["exit", "failed", "unavailable"]
    """It ran; it could not be executed; the sandbox could not be built."""
    code: int
    """The exit status, negative for a signal; or an errno."""
    detail: str | bool = ""


KILLED = Report("exit", -signal.SIGKILL)
"""What stands for the report of a supervisor that was killed itself."""


class ReportReader:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._said = bytearray()

    def read(self) -> Report | None:
        """Takes in what the channel has; the report once it is whole."""
        try:
            part = self._channel.recv(4096)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            part = b""
        self._said += part
        size = wire.LENGTH + int.from_bytes(self._said[: wire.LENGTH], "big")
        if wire.LENGTH < size <= len(self._said):
            return Report(*marshal.loads(bytes(self._said[wire.LENGTH : size])))
        return None if part else KILLED


def execution_error(code: int) -> str:
    """Why a program could not be executed, in the words that clients of this protocol match."""
    kinds = {errno.ENOENT: "NotFound", errno.EACCES: "PermissionDenied", errno.ENOTDIR: "NotADirectory"}
    return (
        f'Io(Os {{ code: {code}, kind: {kinds.get(code, "Uncategorized")}, message: "{os.strerror(code)}" }})'
    )
