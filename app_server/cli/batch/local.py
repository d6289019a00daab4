"""The workers of a batch: their start, their restart when they die, and the messages to them.

The module also has the workers of this machine, which are processes behind pipes, with the folders in which they work.
They hold no lock of the batch. They end when the coordinator ends in any way, because their stdin is then closed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from app_server.cli.batch.checkout import remove
from app_server.cli.batch.worker_messages import FromWorker, Ready, Setup, ToWorker, WrongMessage, from_worker
from app_server.client.failures import ServerEnded
from app_server.client.link import SubprocessConnector
from app_server.engine.support.filelock import LockHeld, hold
from app_server.engine.support.private_folder import make_private_folder
from app_server.engine.support.worker_threads import run_in_thread
from app_server.server.rpc.outgoing import OutboundQueue
from app_server_protocol.framing import Transport, TransportClosed

COMMAND: Final = (sys.executable, "-P", "-m", "app_server.cli.batch.worker")
LONGEST_LINE: Final = 1 << 31
DIES_WITHIN: Final = 5.0
"""Timeout for the worker of a killed coordinator to notice that, in seconds."""
STARTS: Final = 3
"""Maximum number of times in a row that a worker may end before it is ready, or send an invalid message."""

log = logging.getLogger(__name__)

Hear = Callable[[int, FromWorker | None], None]
"""Callback that handles a message of a worker, with its number. The message is None if the worker died. It raises
WrongMessage for an invalid message, which ends the worker.
"""
Connect = Callable[[], AbstractAsyncContextManager[Transport]]
"""Function that starts a worker, which ends with the block."""


class Workers:
    """A fixed number of workers."""

    def __init__(self, count: int, connect: Connect) -> None:
        self.count, self._connect = count, connect
        self._senders: dict[int, Callable[[ToWorker], None]] = {}
        self._given_up = 0

    @asynccontextmanager
    async def open(self, setup: Setup, hear: Hear) -> AsyncIterator[None]:
        """Start them; they end with the block. Raises ServerEnded if none can be started."""
        async with anyio.create_task_group() as group:
            for number in range(self.count):
                group.start_soon(self._tend, number, setup, hear, name=f"worker {number}")
            yield
            group.cancel_scope.cancel()

    def send(self, worker: int, message: ToWorker) -> None:
        """Send a message to a worker. A worker that has died does not receive it."""
        if (send := self._senders.get(worker)) is not None:
            send(message)

    async def _tend(self, number: int, setup: Setup, hear: Hear) -> None:
        """Keep a worker of this number running until the end. If that is not possible, the others continue."""
        failures = 0
        while failures < STARTS:
            failures = 0 if await self._run(number, setup, hear) else failures + 1
        self._given_up += 1
        if self._given_up == self.count:
            raise ServerEnded(f"every worker ended {STARTS} times before it was of use")

    async def _run(self, number: int, setup: Setup, hear: Hear) -> bool:
        """Run a worker to its end. Return whether it was ever ready, and sent only valid messages."""
        was_ready = made_sense = False
        async with self._connect() as transport, anyio.create_task_group() as group:
            send = self._senders[number] = sender(transport, group)
            send(setup)
            try:
                async for message in heard(transport, from_worker):
                    was_ready = was_ready or isinstance(message, Ready)
                    hear(number, message)
                made_sense = True
            except WrongMessage as wrong:
                log.warning("worker %d is ended for what it said: %s", number, wrong)
            group.cancel_scope.cancel()
        del self._senders[number]
        hear(number, None)
        return was_ready and made_sense


def local_workers(count: int, environment: Mapping[str, str]) -> Workers:
    """Return workers that are processes of this machine."""
    connector = SubprocessConnector(
        command=COMMAND,
        environment=environment,
        on_stderr=lambda text: print(text, file=sys.stderr),  # noqa: T201
        longest_line=LONGEST_LINE,
    )
    return Workers(count, connector.open)


@asynccontextmanager
async def scratch_folder(work: Path) -> AsyncIterator[Path]:
    """Make a folder for a worker, and remove it at the end. A lock beside it shows whether the worker lives; the
    folders of dead workers are removed. Raises GitError, OSError and UnsafeFolder.
    """
    make_private_folder(str(work))
    await sweep(work, 0.0)
    scratch = work / f"worker-{os.urandom(4).hex()}"
    lock = hold(f"{scratch}.lock")  # before there is a folder that another worker could find
    scratch.mkdir()
    try:
        yield scratch
    finally:
        with anyio.CancelScope(shield=True):
            await _remove_scratch(scratch, lock)


async def sweep(work: Path, seconds: float = DIES_WITHIN) -> None:
    """Remove the folders of workers that have died, or die within `seconds`. Raises GitError and OSError."""
    for folder in sorted(work.glob("worker-????????")):
        with suppress(LockHeld):
            await _remove_scratch(folder, await run_in_thread(hold, f"{folder}.lock", seconds))


async def _remove_scratch(folder: Path, lock: int) -> None:
    try:
        await remove(folder)
        Path(f"{folder}.lock").unlink(missing_ok=True)
    finally:
        os.close(lock)


# --- used by both sides
T = TypeVar("T", ToWorker, FromWorker)


async def heard(transport: Transport, decode: Callable[[bytes], T]) -> AsyncIterator[T]:
    """Yield the messages of the other side, until it ends. Raises WrongMessage."""
    async for lines in transport.lines():
        for each in lines:
            if not isinstance(each, bytes):
                raise WrongMessage("a line is too long")
            yield decode(each)


def sender(transport: Transport, group: TaskGroup) -> Callable[[ToWorker | FromWorker], None]:
    """Return a function that sends messages to the other side. When the other side ends, its own messages end, too."""
    outgoing = OutboundQueue(transport.write, LONGEST_LINE)

    async def write() -> None:
        with suppress(TransportClosed):
            await outgoing.write_queued()

    group.start_soon(write)
    return lambda message: outgoing.send(msgspec.json.encode(message))
