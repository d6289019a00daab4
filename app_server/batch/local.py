"""The workers of a batch, wherever they are: started, started again when they die, told what to do. And those of this
machine, which are processes behind pipes.

They hold no lock of the batch, and end with the coordinator, however that ends, since their stdin does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from app_server.batch.messages import FromWorker, Ready, Setup, ToWorker, from_worker, line
from app_server.transport.framing import LineDecoder
from protocol.structs import replace

COMMAND: Final = (sys.executable, "-P", "-m", "app_server.batch.worker")
LONGEST_LINE: Final = 1 << 31
STARTS: Final = 3
"""How often a worker may end before it is ready."""
ENDS_WITHIN: Final = 10.0
"""Seconds for a worker to end that is needed no more."""

Hear = Callable[[int, FromWorker | None], None]
"""Takes what a worker says, by its number; None: it died."""


class WorkersFailed(Exception):
    """Workers cannot be started; the text says why."""


class WorkerLink(NamedTuple):
    """A worker that has been started."""

    node: str
    """What its machine is called in results; empty: by its own name."""
    receive: Callable[[], Awaitable[bytes]]
    """Returns some of what it writes; nothing, or anyio.EndOfStream, once it has ended."""
    send: Callable[[bytes], Awaitable[object]]
    """Writes to its stdin; may raise what anyio's streams do once it has died."""


class Workers:
    """So many workers, each of which is started by `connect`, and ends with that block."""

    def __init__(self, count: int, connect: Callable[[], AbstractAsyncContextManager[WorkerLink]]) -> None:
        self.count, self._connect = count, connect
        self._queues: dict[int, MemoryObjectSendStream[ToWorker]] = {}

    @asynccontextmanager
    async def open(self, setup: Setup, hear: Hear) -> AsyncIterator[None]:
        """Start them; they end with the block. Raises WorkersFailed."""
        async with anyio.create_task_group() as group:
            for number in range(self.count):
                group.start_soon(self._tend, number, setup, hear, name=f"worker {number}")
            yield
            group.cancel_scope.cancel()

    def send(self, worker: int, message: ToWorker) -> None:
        """Tell a worker something; one that has died does not hear it."""
        if (queue := self._queues.get(worker)) is not None:
            queue.send_nowait(message)

    async def _tend(self, number: int, setup: Setup, hear: Hear) -> None:
        """Have a worker of this number until the end."""
        failures = 0
        while failures < STARTS:
            failures = 0 if await self._run(number, setup, hear) else failures + 1
        raise WorkersFailed(f"a worker ended {STARTS} times before it was ready")

    async def _run(self, number: int, setup: Setup, hear: Hear) -> bool:
        """Run a worker to its end; return whether it was ever ready."""
        queue, messages = anyio.create_memory_object_stream[ToWorker](float("inf"))
        was_ready, decoder = False, LineDecoder(LONGEST_LINE)
        async with self._connect() as link, anyio.create_task_group() as group:
            self._queues[number] = queue
            queue.send_nowait(replace(setup, node=link.node))
            group.start_soon(_feed, link, messages)
            with suppress(anyio.EndOfStream):
                while data := await link.receive():
                    for each in decoder.feed(data):
                        message = from_worker(bytes(each)) if isinstance(each, bytes) else None
                        was_ready = was_ready or isinstance(message, Ready)
                        hear(number, message)
            group.cancel_scope.cancel()
        del self._queues[number]
        hear(number, None)
        return was_ready


async def _feed(link: WorkerLink, messages: MemoryObjectReceiveStream[ToWorker]) -> None:
    """Write what the worker is told, until it dies: then its stdout ends, too."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for message in messages:
            lines = [line(message)]
            while messages.statistics().current_buffer_used:
                lines.append(line(messages.receive_nowait()))
            await link.send(b"".join(lines))


def local_workers(count: int, environment: Mapping[str, str]) -> Workers:
    """Return workers that are processes of this machine."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[WorkerLink]:
        pipe = subprocess.PIPE
        async with await anyio.open_process(
            COMMAND, stdin=pipe, stdout=pipe, stderr=None, env=environment, start_new_session=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield WorkerLink("", process.stdout.receive, process.stdin.send)
            finally:
                with anyio.move_on_after(ENDS_WITHIN, shield=True):
                    await process.stdin.aclose()
                    await process.wait()
                if process.returncode is None:
                    process.kill()

    return Workers(count, connect)
