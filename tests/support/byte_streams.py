"""Two connected byte streams in memory, like a socket pair."""

from __future__ import annotations

import math

import anyio
from anyio.abc import ByteStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream


class MemoryByteStream(ByteStream):
    """One end of the pair. The other end receives what it sends in pieces of any size."""

    def __init__(
        self, incoming: MemoryObjectReceiveStream[bytes], outgoing: MemoryObjectSendStream[bytes]
    ) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._rest:
            self._rest = await self._incoming.receive()
        piece, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return piece

    async def send(self, item: bytes) -> None:
        await self._outgoing.send(item)

    async def send_eof(self) -> None:
        self._outgoing.close()

    async def aclose(self) -> None:
        self._outgoing.close()
        self._incoming.close()

    async def receive_all(self) -> bytes:
        """Return all bytes until the other end has sent its last one."""
        out, self._rest = self._rest, b""
        async for piece in self._incoming:
            out += piece
        return out


def byte_pair(
    *, to_first: float = math.inf, to_second: float = math.inf
) -> tuple[MemoryByteStream, MemoryByteStream]:
    """Return two connected ends. The numbers are how many pieces may wait unread before the sender has to wait."""
    to_a, from_b = anyio.create_memory_object_stream[bytes](to_first)
    to_b, from_a = anyio.create_memory_object_stream[bytes](to_second)
    return MemoryByteStream(from_b, to_b), MemoryByteStream(from_a, to_a)
