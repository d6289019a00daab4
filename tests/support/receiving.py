"""A reception in this process, over real sockets: it serves clients with an echo, and loads no engine."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from app_server.apis.services import Served
from app_server.core.config.types import SharingSettings
from app_server.core.lazy import Lazy
from app_server.places.socket_place import SocketPlace, named_place
from app_server.server import ClientPlace, Work
from app_server.shared.arrivals import Arrival, Doorway
from app_server.shared.binding import HeldPlace, hold_place
from app_server.shared.http_door import HttpDoor
from app_server.shared.lifetime import Lifetime, ListeningPlace
from app_server.shared.preface import Question, yes
from app_server.shared.reception import Reception
from app_server.transport.framing import Transport, TransportClosed

LINE_LIMIT = 1 << 20
NOTHING = Work(conversations=0, turns=0, questions=0, commands=0)


class Echo:
    """Says every line again. Has no work."""

    work = NOTHING

    def __init__(self) -> None:
        self.places: list[ClientPlace] = []

    async def serve(
        self, transport: Transport, place: ClientPlace, *, joined: Callable[[Served], Awaitable[None]]
    ) -> None:
        self.places.append(place)
        async for lines in transport.lines():
            for line in lines:
                if isinstance(line, bytes):
                    try:
                        await transport.write(line + b"\n")
                    except TransportClosed:
                        return

    async def settle(self) -> None:
        pass

    async def end_conversations(self) -> None:
        pass


async def answer(question: Question, arrival: Arrival) -> None:
    await arrival.dismiss(yes(ask=question.ask))


def reception_of(
    server: Echo, place: ClientPlace, most: int = 256, line_limit: int = LINE_LIMIT
) -> Reception:
    return Reception(server, place, most=most, line_limit=line_limit, wall_clock=lambda: 0.0, answer=answer)


def doorway(held: HeldPlace, reception: Reception) -> Doorway:
    def http() -> HttpDoor:
        return HttpDoor(port=None, token_sha256=None, line_limit=LINE_LIMIT, unavailable=reception.why_full)

    return Doorway(held.bind({}), f"unix://{held.place.socket}", Lazy(http))


def client_place(home: Path) -> ClientPlace:
    return ClientPlace(home=home, cwd=home, brings_environment=False, shared=True)


@asynccontextmanager
async def receiving(
    folder: Path, most: int = 256, line_limit: int = LINE_LIMIT
) -> AsyncIterator[tuple[Reception, SocketPlace]]:
    """A reception that listens in the folder; its connections are gone with the block."""
    place = named_place(str(folder / "s"))
    held = hold_place(place)
    reception = reception_of(Echo(), client_place(folder), most, line_limit)
    reception.doors = [doorway(held, reception)]
    async with anyio.create_task_group() as group:
        group.start_soon(reception.run)
        try:
            yield reception, place
        finally:
            reception.stop_listening()
            group.cancel_scope.cancel()
            held.unlink()
            held.release()


def lifetime_of(
    folder: Path, settings: SharingSettings
) -> tuple[Lifetime, Reception, SocketPlace, ListeningPlace]:
    """A server that listens in the folder, before it runs."""
    place = named_place(str(folder / "s"))
    held = hold_place(place)
    server = Echo()
    reception = reception_of(server, client_place(folder))
    listening = ListeningPlace(held, doorway(held, reception))
    reception.doors = [listening.door]
    return Lifetime(server, reception, [listening], settings, os.environ), reception, place, listening


def dialled(place: SocketPlace) -> socket.socket:
    """A connection, which blocks for a bounded time."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(place.socket)
    return connection
