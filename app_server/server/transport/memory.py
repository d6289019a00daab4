"""A pair of in-memory transports: one side reads what the other writes."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from app_server_protocol.framing import DEFAULT_LINE_LIMIT, LineDecoder, Oversized, TransportClosed


class MemoryTransport:
    """One end of the pair."""

    def __init__(
        self,
        incoming: MemoryObjectReceiveStream[bytes],
        outgoing: MemoryObjectSendStream[bytes],
        limit: int = DEFAULT_LINE_LIMIT,
    ) -> None:
        self._incoming, self._outgoing, self._limit = incoming, outgoing, limit

    async def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        decoder = LineDecoder(self._limit)
        async with self._incoming:
            async for data in self._incoming:
                if lines := decoder.feed(data):
                    yield lines

    async def write(self, data: bytes) -> None:
        try:
            await self._outgoing.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise TransportClosed from error

    def close(self) -> None:
        """End the other side's input, like closing a pipe."""
        self._outgoing.close()


def memory_pair(
    limit: int = DEFAULT_LINE_LIMIT, *, buffered: float = math.inf
) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two connected ends. `buffered` is the number of unread writes above which a writer waits."""
    to_a, from_b = anyio.create_memory_object_stream[bytes](buffered)
    to_b, from_a = anyio.create_memory_object_stream[bytes](buffered)
    return MemoryTransport(from_b, to_b, limit), MemoryTransport(from_a, to_a, limit)
