"""The process's stdin and stdout as a transport.

`claim` has reserved the descriptor for output. Neither side blocks the event loop. Pipes are written through their own
description, because O_NONBLOCK on an inherited one would change the client's end too.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator

import anyio

from app_server.server.bootstrap.descriptors import own_description
from app_server_protocol.framing import DEFAULT_LINE_LIMIT, LineDecoder, Oversized, TransportClosed

READ_SIZE = 1 << 18
"""Size of a read, in bytes: a pipe holds 64 KiB by default and at most 1 MiB."""


class StdioTransport:
    """Lines from one descriptor, bytes to another."""

    def __init__(self, read_fd: int, write_fd: int, limit: int = DEFAULT_LINE_LIMIT) -> None:
        self._read_fd = read_fd
        self._limit = limit
        self._read_waits = _can_wait(read_fd)
        self._socket: socket.socket | None = None
        self._write_fd = write_fd
        mode = os.fstat(write_fd).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(write_fd))
        elif stat.S_ISFIFO(mode):
            self._write_fd = own_description(write_fd) if os.get_blocking(write_fd) else write_fd

    async def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        decoder = LineDecoder(self._limit)
        while data := await self._read():
            if lines := decoder.feed(data):
                yield lines

    async def _read(self) -> bytes:
        while True:
            if self._read_waits:
                await anyio.wait_readable(self._read_fd)
            else:
                # A regular file or /dev/null is always ready and cannot be waited for.
                await anyio.lowlevel.checkpoint()
            try:
                return os.read(self._read_fd, READ_SIZE)
            except BlockingIOError:
                continue
            except OSError:
                return b""  # the client has left, which is an end of input like any other

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._write_some(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._write_fd)
            except OSError as error:
                raise TransportClosed from error

    def _write_some(self, view: memoryview) -> int:
        if self._socket is not None:
            return self._socket.send(view, socket.MSG_DONTWAIT)
        return os.write(self._write_fd, view)


def _can_wait(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
