"""A network backend for httpcore that sends the head and the body of a request together. Import late.

httpcore writes them separately, which costs two packets and two wakeups on each side.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

import httpcore

AT_ONCE_BYTES = 1 << 16
"""More than this is not held back."""

SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class GatheringStream(httpcore.AsyncNetworkStream):
    """Buffers writes until the buffer is large or the client reads."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._socket = stream.get_extra_info("socket")
        self._held: list[bytes] = []

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._held.append(buffer)
        if sum(map(len, self._held)) > AT_ONCE_BYTES:
            await self._flush(timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            await self._flush(timeout)
        except httpcore.WriteError:
            pass  # a server that takes no more may have said why, which httpcore would read, too
        return await self._stream.read(max_bytes, timeout)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        await self._flush(timeout)
        return GatheringStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked of each idle connection at each request
            return _is_readable(self._socket)
        return self._stream.get_extra_info(info)

    async def _flush(self, timeout: float | None) -> None:
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            await self._stream.write(data, timeout)


def _is_readable(connection: socket.socket | None) -> bool:
    """Something has come, or the other side has closed it."""
    if connection is None or connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


CONNECTED: ContextVar[bool] = ContextVar("CONNECTED")
"""Whether the request of the current task opened a connection. httpcore's own `trace` awaits a callback at each step to
say as much.
"""


class GatheringNetwork(httpcore.AsyncNetworkBackend):
    """Connects as httpcore does, and sets `CONNECTED`."""

    def __init__(self) -> None:
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        CONNECTED.set(True)
        return GatheringStream(
            await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        )

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)
