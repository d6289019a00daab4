"""Logging to stderr without ever blocking: stderr may be closed, a socket, or a pipe without a reader. Lines that do
not fit are dropped, and their number is logged once there is capacity again. Fast to import.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from app_server.server.bootstrap.descriptors import own_description

LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

CONNECTION: ContextVar[int | None] = ContextVar("connection", default=None)
"""Number of the connection that the current task serves, in a server with several."""

LONGEST_LINE = 4000
"""Maximum size of a line, in bytes; a write of up to 4096 bytes to a pipe is atomic."""


class NonBlockingHandler(logging.Handler):
    """Writes records to a descriptor and drops those that do not fit."""

    def __init__(self, write: Callable[[bytes], int]) -> None:
        super().__init__()
        self._write = write
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:
            text = (
                f"{record.levelname} {record.name}: a message that cannot be formatted: {record.msg!r:.200}"
            )
        if self._dropped and self._line(f"({self._dropped} lines were dropped: nobody read them)"):
            self._dropped = 0
        for line in text.splitlines():
            self._dropped += not self._line(line)

    def _line(self, text: str) -> bool:
        plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)  # stderr may be a terminal
        data = plain.encode()[:LONGEST_LINE] + b"\n"
        try:
            self._write(data)
        except OSError:
            return False
        return True


class NumberingFormatter(logging.Formatter):
    """Formatter that adds the number of the connection to a line, if there is more than one."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        number = CONNECTION.get()
        return text if number is None else f"[{number}] {text}"


def set_up_logging(environment: Mapping[str, str], write: Callable[[bytes], int] | None = None) -> None:
    """Set up the log to stderr, or by `write`. Its level is set by APP_SERVER_LOG (`debug`) or, as for codex 0.58, by
    RUST_LOG (`warn`, `codex=debug,info`).
    """
    wanted = environment.get("APP_SERVER_LOG") or environment.get("RUST_LOG") or "warn"
    plain = [part for part in wanted.split(",") if "=" not in part]
    level = LEVELS.get((plain[-1] if plain else wanted.rpartition("=")[2]).strip().lower(), logging.WARNING)
    handler = NonBlockingHandler(write or _writer(2))
    handler.setFormatter(NumberingFormatter(FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpcore2", "httpx2", "asyncio"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))


def _writer(fd: int) -> Callable[[bytes], int]:
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode):
        own = own_description(fd)
        return lambda data: os.write(own, data)
    if stat.S_ISSOCK(mode):
        end = socket.socket(fileno=os.dup(fd))
        return lambda data: end.send(data, socket.MSG_DONTWAIT)
    return lambda data: os.write(fd, data)
