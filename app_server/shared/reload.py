"""Replaces a server by one of the version that is installed now, without a client noticing more than a pause.

The new server is started beside the old one and loads everything. Then there is a quiet moment, in which nothing goes
on that could not go on in another process: no input is read any more, conversations are ended behind their files, and
the new server is handed the sockets. Whatever fails, until it has said that it serves, leaves the old one serving.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
import anyio.lowlevel

from app_server.apis.keeping import Together
from app_server.core.threads import run_in_thread
from app_server.server import Server
from app_server.shared.handover import LOADED, TOOK, HandedOver, send
from app_server.shared.reception import Reception
from app_server.shared.visits import Arrival, KeptVisit

log = logging.getLogger(__name__)

LOADS_WITHIN = 60
"""Seconds for the new server to load everything."""
TAKES_WITHIN = 10
"""Seconds for it to take over."""
SETTLES_WITHIN = 0.5
"""Seconds for what was read before the quiet moment to be answered."""
ENDS_WITHIN = 5
"""Seconds for conversations to be ended behind their files."""
LOOK_SECONDS = 0.05
"""Between two looks at whether anything goes on."""

OF_STARTERS = ("--startup", "--successor")
"""Options with descriptors of who has started this process."""
OF_MANAGERS = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class NotReplaced(Exception):
    """The old server goes on; the text is a clause that says why."""


class Successor:
    """The new server, as a process that waits."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Raises NotReplaced."""
        self._channel, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                (*command, "--successor", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={name: value for name, value in environment.items() if name not in OF_MANAGERS},
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            self._channel.close()
            raise NotReplaced(f"the new version cannot be started: {error}") from None
        finally:
            theirs.close()

    def wait_until_loaded(self) -> None:
        """Raises NotReplaced."""
        if (said := self._hear(len(LOADED), LOADS_WITHIN)) != LOADED:
            other = "of another form" if said.startswith(LOADED[:6]) else "not there"
            raise NotReplaced(f"the new version does not start: its answer is {other}, see above")

    def hand_over(self, state: HandedOver, descriptors: Sequence[int]) -> None:
        """Raises NotReplaced where the new server does not take it."""
        try:
            send(self._channel, state, descriptors)
        except OSError as error:
            raise NotReplaced(f"nothing can be handed over: {error.strerror}") from None
        if self._hear(len(TOOK), TAKES_WITHIN) != TOOK:
            raise NotReplaced("the new version does not take over")

    def _hear(self, most: int, seconds: float) -> bytes:
        self._channel.settimeout(seconds)
        try:
            return self._channel.recv(most)
        except OSError:
            return b""

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._channel.close()


class Reload:
    """The replacement of one server, whenever it is wanted."""

    def __init__(
        self,
        server: Server,
        reception: Reception,
        environment: Mapping[str, str],
        *,
        refused: str | None,
    ) -> None:
        """`refused` says why this process cannot be replaced, if so."""
        self._server, self._reception = server, reception
        self._environment, self.refused = environment, refused
        self._wanted = anyio.Event()
        self._over = anyio.Event()
        self._failure = ""

    # --- what is wanted
    def begin(self, *, now: bool = False) -> None:
        """Begin to replace the server, unless that has begun; `now`: interrupt what runs, and begin no more turns."""
        if self.refused is not None:
            log.warning("not reloaded: %s", self.refused)
            return
        self._wanted.set()
        if now:
            self._server.conversations.draining = True
            for live in self._server.conversations.all():
                live.interrupt()
                live.session.kill_terminals()

    async def failed(self) -> str:
        """Return why the server was not replaced. Where it was, this process has gone."""
        await self._over.wait()
        return self._failure

    @property
    def waits_for(self) -> list[str] | None:
        """Return what goes on before the quiet moment; None where none is wanted."""
        return list(self._going_on()) if self._wanted.is_set() else None

    def _going_on(self) -> Iterator[str]:
        live = self._server.conversations.all()
        yield from (f"the turn or a command of {each.id}" for each in live if each.busy)
        yield from (f"a question in {each.id}" for each in live if each.questions.open)
        yield from (
            f"{each.id}, which is in no file" for each in live if each.ephemeral and each.subscriptions.any
        )
        yield from self._reception.going_on()

    # --- how it goes
    async def run(self) -> None:
        """Replace the server as often as that is wanted and fails, until cancelled."""
        while True:
            await self._wanted.wait()
            log.info("a server of the installed version is started beside this one")
            try:
                await self._replace()
            except NotReplaced as error:
                self._failure = str(error)
            log.error("this server goes on: %s", self._failure)
            self._server.conversations.draining = False
            self._over.set()
            self._over, self._wanted = anyio.Event(), anyio.Event()

    async def _replace(self) -> None:
        """Raises NotReplaced."""
        successor = Successor(command_of_this_process(), self._environment)
        try:
            await run_in_thread(successor.wait_until_loaded, abandon_on_cancel=True)
            log.info("it has loaded; waiting for: %s", ", ".join(self._going_on()) or "nothing")
            while True:
                if not any(self._going_on()):
                    await self._try(successor)
                await anyio.sleep(LOOK_SECONDS)
        finally:
            successor.end()

    async def _try(self, successor: Successor) -> None:
        """Hand everything over and leave; return where something has begun meanwhile. Raises NotReplaced."""
        reception = self._reception
        reception.pause()
        try:
            with anyio.move_on_after(SETTLES_WITHIN):
                await _until(lambda: not any(reception.going_on()))
            if any(self._going_on()):
                return
            clients = [each for each in reception.clients if isinstance(each, Arrival)]
            kept = [each.keep() for each in clients]
            try:
                await self._end_conversations()
                await run_in_thread(self._hand_over, successor, clients, kept)
            except NotReplaced:
                await self._go_on(clients, kept)
                raise
        finally:
            reception.resume()
        log.info("replaced")
        os._exit(0)  # an end in order would end the connections, which are the new server's

    async def _end_conversations(self) -> None:
        with anyio.move_on_after(ENDS_WITHIN):
            await self._server.conversations.hand_over_all()
            await _until(self._is_written)
            return
        raise NotReplaced("conversations cannot be stored")

    def _is_written(self) -> bool:
        """Tell whether every client has been written all that it was told."""
        clients = (each.client for each in self._reception.clients)
        return all(client is None or client.outgoing.unread == 0 for client in clients)

    def _hand_over(self, successor: Successor, clients: list[Arrival], kept: list[KeptVisit]) -> None:
        """Raises NotReplaced."""
        doors = self._reception.doors
        places = [(door.held, door.socket.fileno()) for door in doors if door.held is not None]
        state = HandedOver(
            places=tuple(held.keep() for held, _ in places),
            connections=tuple(kept),
            last_number=self._reception.last_number,
        )
        descriptors = [
            *(fd for held, listening in places for fd in (held.lock, listening)),
            *(door.socket.fileno() for door in doors if door.held is None),
            *(each.stream.socket.fileno() for each in clients),
        ]
        successor.hand_over(state, descriptors)

    async def _go_on(self, clients: list[Arrival], kept: list[KeptVisit]) -> None:
        """Open the conversations again here: nobody else does."""
        served = [(each.served, was.client) for each, was in zip(clients, kept, strict=True)]
        known = [(each, client) for each, client in served if each is not None and client is not None]
        together, conversations = Together(len(known)), self._server.conversations
        conversations.restoring = True
        async with anyio.create_task_group() as group:
            for each, client in known:
                group.start_soon(together.reopen, each, client)
        conversations.restored()


async def _until(condition: Callable[[], bool]) -> None:
    """Return in the first turn of the event loop in which the condition holds."""
    while not condition():
        await anyio.lowlevel.checkpoint()


def command_of_this_process() -> list[str]:
    """Return the command with which this process was started, without what its starter gave it."""
    words, left = [sys.executable], iter(sys.orig_argv[1:])
    for word in left:
        if word in OF_STARTERS:
            next(left, None)
        elif not word.startswith(tuple(f"{each}=" for each in OF_STARTERS)):
            words.append(word)
    return words
