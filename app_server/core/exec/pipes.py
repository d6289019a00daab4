"""Ends of pipes as byte streams."""

from __future__ import annotations

import contextlib
import fcntl
import os

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

READ_SIZE = 1 << 18
F_SETPIPE_SZ = 1031
"""Linux: makes pipes as large as one read, so that large output arrives in few pieces."""


def enlarge(number: int) -> None:
    """Make a pipe as large as one read, if the system allows it."""
    with contextlib.suppress(OSError):  # another system, or the user's share of pipe memory is used up
        fcntl.fcntl(number, F_SETPIPE_SZ, READ_SIZE)


class PipeReceiveStream(ByteReceiveStream):
    """Reads from a pipe, which it owns."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        enlarge(number)
        self._number = number

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            if self._number < 0:
                raise anyio.ClosedResourceError
            try:
                data = os.read(self._number, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._number)
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class PipeSendStream(ByteSendStream):
    """Writes to a pipe, which it owns."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number = number

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            if self._number < 0:
                raise anyio.ClosedResourceError
            try:
                rest = rest[os.write(self._number, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._number)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)
