"""The connection of a person in a simulated world. It records the messages of both directions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server_protocol.encoding import Json
from app_server_protocol.framing import TransportClosed
from tests.support.client import Logged, MemoryWire

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld


class Gone(Exception):
    """The connection has ended before an answer came."""


class Connection:
    """The reading and writing part of a client. `tests.support.invariants` reads its log."""

    api: str

    def __init__(self, world: "SimWorld", wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        self.world, self.wire, self.tasks, self.home = world, wire, tasks, home
        self.name = world.new_name(self.api)
        self.log: list[Logged] = []
        self.garbage: list[bytes] = []
        self.left_early = self.leaving = self.closed = False
        self.left_at: float | None = None
        """Virtual time at which the client left, in seconds. None if it has not left."""
        self.dead = False
        """Whether the server was killed, or the client died. Messages that arrive afterwards are ignored."""
        self.server = self.name
        """Name of the server of this client. Where a server has several clients, it is the same for all who receive its
        questions.
        """
        self._next_id = 0
        self._answers: dict[int, Json] = {}
        self._changed = anyio.Event()
        self._writing = anyio.Lock()
        self.asking = 0
        """Number of requests without an answer."""

    async def read(self) -> None:
        async for line in self.wire.lines():
            self.hear(line)
        self.closed = True
        self.wake()

    def hear(self, line: bytes) -> None:
        """Take a line from the server."""
        raise NotImplementedError

    def note_message(self, message: Json, *, sent: bool) -> None:
        self.log.append(Logged(sent, message))
        self.world.model.journal.message(self.name, message, sent=sent)

    def wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def write(self, message: Json) -> None:
        async with self._writing:  # the log keeps the order of the wire
            if self.closed or self.leaving or self.dead:
                raise Gone
            self.note_message(message, sent=True)
            try:
                with anyio.CancelScope(shield=True):  # every logged message was sent
                    await self.wire.write(json.dumps(message).encode() + b"\n")
            except TransportClosed:
                raise Gone from None

    async def ask(self, method: str, params: Json) -> Json:
        """Send a request and return its whole answer. Raises Gone."""
        self._next_id += 1
        id = self._next_id
        self.asking += 1
        try:
            await self.write(self._message({"id": id, "method": method, "params": params}))
            await self.until(lambda: id in self._answers)
        finally:
            self.asking -= 1
        return self._answers[id]

    def _message(self, message: Json) -> Json:
        return message

    def received(self) -> list[Json]:
        return self.received_since(0)

    def received_since(self, begin: int) -> list[Json]:
        return [entry.message for entry in self.log[begin:] if not entry.sent]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a message makes the condition true. Raises Gone."""
        while not condition():
            if self.closed:
                raise Gone
            await self._changed.wait()

    async def leave(self) -> None:
        """Close the connection and wait until the server has closed its end."""
        self.leaving = True
        self.left_at = anyio.current_time() if self.left_at is None else self.left_at
        self.world.model.note("somebody left")
        await self.wire.close()
        await self.until_closed()

    async def until_closed(self) -> None:
        while not self.closed:
            await self._changed.wait()
