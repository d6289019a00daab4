"""The two ways to reach a server: in this process through memory, or as a process of its own through pipes."""

from collections.abc import AsyncIterator
from typing import Protocol

import anyio
from anyio.abc import Process

from app_server.transport.framing import LineDecoder
from app_server.transport.memory import MemoryTransport


class Wire(Protocol):
    def lines(self) -> AsyncIterator[bytes]: ...

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None:
        """End the direction to the server."""
        ...


class MemoryWire:
    def __init__(self, end: MemoryTransport) -> None:
        self._end = end

    async def lines(self) -> AsyncIterator[bytes]:
        async for batch in self._end.lines():
            for line in batch:
                assert isinstance(line, bytes), "the server wrote a line over the limit"
                yield line

    async def write(self, data: bytes) -> None:
        await self._end.write(data)

    async def close(self) -> None:
        self._end.close()


class ProcessWire:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def lines(self) -> AsyncIterator[bytes]:
        decoder = LineDecoder()
        async for data in self._stdout:
            for line in decoder.feed(data):
                assert isinstance(line, bytes), "the server wrote a line over the limit"
                yield line
        if rest := decoder.close():
            yield rest

    async def write(self, data: bytes) -> None:
        try:
            await self._stdin.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionError("the server reads no more") from None

    async def close(self) -> None:
        await self._stdin.aclose()
