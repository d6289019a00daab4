"""A reception in this process, over real sockets: it serves clients with an echo, and loads no engine."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio

from app_server.engine.config.config_values import SharingSettings
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.socket_paths import SocketPaths, named_place
from app_server.server.composition import ServedConnection, Server, ServerLoad
from app_server.server.daemon.acceptor import Acceptor
from app_server.server.daemon.binding import BoundSocket, hold_place
from app_server.server.daemon.client_connections import SocketConnection
from app_server.server.daemon.listeners import Listener
from app_server.server.daemon.preface import Question, yes
from app_server.server.daemon.shutdown import Shutdown
from app_server.server.daemon.websocket_listener import WebSocketListener
from app_server.server.server_settings import ClientSettings
from app_server_protocol.framing import Transport, TransportClosed

LINE_LIMIT = 1 << 20
NOTHING = ServerLoad(conversations=0, turns=0, questions=0, commands=0)


class Echo:
    """Server that sends every line back. It never has work."""

    work = NOTHING

    def __init__(self) -> None:
        self.places: list[ClientSettings] = []

    async def serve(
        self, transport: Transport, place: ClientSettings, *, joined: Callable[[ServedConnection], None]
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

    async def unload_idle(self) -> None:
        pass

    async def end_conversations(self) -> None:
        pass


async def answer(question: Question, arrival: SocketConnection) -> None:
    await arrival.dismiss(yes(ask=question.ask))


def reception_in(
    folder: Path, server: Echo, most: int = 256, line_limit: int = LINE_LIMIT
) -> tuple[Acceptor, SocketPaths, BoundSocket]:
    """Return a reception in the folder, before it listens and runs."""
    place = named_place(str(folder / "s"))
    held = hold_place(place)
    client = ClientSettings(home=folder, cwd=folder, brings_environment=False, shared=True)
    reception = Acceptor(
        cast(Server, server), client, most=most, line_limit=line_limit, wall_clock=lambda: 0.0, answer=answer
    )

    def http() -> WebSocketListener:
        return WebSocketListener(
            port=None, token_sha256=None, line_limit=LINE_LIMIT, unavailable=reception.why_full
        )

    reception.doors = [Listener(held.listen({}), f"unix://{place.socket}", Lazy(http), held)]
    return reception, place, held


@asynccontextmanager
async def receiving(
    folder: Path, most: int = 256, line_limit: int = LINE_LIMIT, server: Echo | None = None
) -> AsyncIterator[tuple[Acceptor, SocketPaths]]:
    """Run a reception that listens in the folder; its connections are closed when the block ends."""
    reception, place, held = reception_in(folder, server or Echo(), most, line_limit)
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
    folder: Path, settings: SharingSettings, server: Echo | None = None
) -> tuple[Shutdown, Acceptor, SocketPaths]:
    """Return a server that is to listen in the folder, before it runs."""
    server = server or Echo()
    reception, place, _ = reception_in(folder, server)
    lifetime = Shutdown(cast(Server, server), reception, settings, os.environ)
    return lifetime, reception, place


def dialled(place: SocketPaths) -> socket.socket:
    """Connect to the place; return a socket that blocks for a bounded time."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(place.socket)
    return connection
