"""Requests of `app-server daemon` to a running server, over its socket, and their answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from app_server import __version__
from app_server.server.composition import ServerLoad
from app_server.server.daemon.acceptor import Acceptor
from app_server.server.daemon.client_connections import ClientConnection, SocketConnection
from app_server.server.daemon.preface import RETIRE, STATUS, STOP, SUCCESSION, Question, no, yes
from app_server.server.daemon.shutdown import Shutdown
from app_server_protocol.encoding import Json


class Control:
    """Answers for one server."""

    def __init__(
        self,
        reception: Acceptor,
        lifetime: Shutdown,
        work: Callable[[], ServerLoad],
        *,
        words: Sequence[str],
        is_loaded: Callable[[], bool],
        started: float,
        log: str | None,
    ) -> None:
        """Begin to answer for a server. `words` are those of the command line, after the name of the program."""
        self._reception, self._lifetime, self._work, self._words = reception, lifetime, work, words
        self._is_loaded, self._started, self._log = is_loaded, started, log

    async def answer(self, question: Question, arrival: SocketConnection) -> None:
        if question.ask == STATUS:
            await arrival.dismiss(yes(status=self.status()))
        elif question.ask == STOP:
            self._lifetime.stop(now=question.now)
            await arrival.say(yes(pid=os.getpid(), within=self._lifetime.ends_within(now=question.now)))
            arrival.stream.socket.detach()  # closed by the end of the process, for which the other side waits
        elif question.ask in (SUCCESSION, RETIRE) and (why := self._lifetime.stays) is not None:
            await arrival.dismiss(no(why))
        elif question.ask == SUCCESSION:
            await arrival.dismiss(yes(words=words_of_successor(self._words, self.addresses)))
        elif question.ask == RETIRE:
            self._lifetime.retire(now=question.now)
            await arrival.dismiss(yes(pid=os.getpid(), clients=len(self._reception.clients)))
        else:
            await arrival.dismiss(no(f"the server does not know what {question.ask!r} is"))

    @property
    def addresses(self) -> list[str]:
        return [door.address for door in self._reception.doors]

    def facts(self) -> dict[str, Json]:
        """Return the content of `server.json`."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "started": self._started,
            "addresses": self.addresses,
        }

    def status(self) -> Json:
        work = self._work()
        return {
            **self.facts(),
            "clients": [_client(visit) for visit in self._reception.clients],
            "threadsLoaded": work.conversations,
            "turnsRunning": work.turns,
            "questionsOpen": work.questions,
            "commandsRunning": work.commands,
            "loaded": self._is_loaded(),
            "memoryBytes": _memory(),
            "log": self._log,
        }


OF_THE_PROCESS = ("--listen", "--startup")
"""Options that are not passed on to a successor, which gets its own."""


def words_of_successor(words: Sequence[str], addresses: Sequence[str]) -> list[str]:
    """Return the options of a server that goes on at the `addresses` of the server with these words, including the
    ports that the system chose.
    """
    return [*_lasting(words), *(f"--listen={address}" for address in addresses)]


def _lasting(words: Sequence[str]) -> Iterator[str]:
    left = iter(words)
    for word in left:
        if word in OF_THE_PROCESS:
            next(left, None)
        elif not word.startswith(tuple(f"{each}=" for each in OF_THE_PROCESS)):
            yield word


def _client(visit: ClientConnection) -> Json:
    client = None if visit.served is None else visit.served.client
    return {
        "number": visit.number,
        "name": None if client is None else client.caller.identity().originator,
        "pid": visit.pid,
        "since": visit.since,
        "unreadBytes": 0 if client is None else client.outgoing.unread,
    }


def _memory() -> int | None:
    """Return the memory that this process uses, in bytes; None if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
