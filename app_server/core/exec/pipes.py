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


class _PipeEnd:
    """One end of a pipe, which it owns and closes once."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number = number

    def open_number(self) -> int:
        """Its descriptor. Raises ClosedResourceError."""
        if self._number < 0:
            raise anyio.ClosedResourceError
        return self._number

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class PipeReceiveStream(_PipeEnd, ByteReceiveStream):
    """Reads from a pipe, which it owns."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        enlarge(number)

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            number = self.open_number()
            try:
                data = os.read(number, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(number)
                continue
            if not data:
                raise anyio.EndOfStream
            return data


class PipeSendStream(_PipeEnd, ByteSendStream):
    """Writes to a pipe, which it owns."""

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            number = self.open_number()
            try:
                rest = rest[os.write(number, rest) :]
            except BlockingIOError:
                await anyio.wait_writable(number)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error
