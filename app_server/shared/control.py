"""What `app-server daemon` asks of a running server, over its socket, and is answered."""

from __future__ import annotations

import os
from collections.abc import Callable

from app_server import __version__
from app_server.server import Work
from app_server.shared.lifetime import Lifetime
from app_server.shared.preface import RELOAD, STATUS, STOP, Question, no, yes
from app_server.shared.reception import Reception
from app_server.shared.reload import Reload
from app_server.shared.visits import Arrival, Visit
from app_server_protocol.structs import Json


class Control:
    """Answers for one server."""

    def __init__(
        self,
        reception: Reception,
        lifetime: Lifetime,
        work: Callable[[], Work],
        reload: Reload,
        *,
        is_loaded: Callable[[], bool],
        started: float,
        log: str | None,
    ) -> None:
        self._reception, self._lifetime, self._work, self._reload = reception, lifetime, work, reload
        self._is_loaded, self._started, self._log = is_loaded, started, log

    async def answer(self, question: Question, arrival: Arrival) -> None:
        if question.ask == STATUS:
            await arrival.dismiss(yes(status=self.status()))
        elif question.ask == STOP:
            self._lifetime.stop(now=question.now)
            await arrival.say(yes())
            arrival.stream.socket.detach()  # it ends with the process, for which the other side waits
        elif question.ask == RELOAD:
            await self._replace(arrival, now=question.now)
        else:
            await arrival.dismiss(no(f"the server does not know what {question.ask!r} is"))

    async def _replace(self, arrival: Arrival, *, now: bool) -> None:
        """Say whether the server can be replaced, and whether that has failed; else the connection ends with it."""
        if self._reload.refused is not None:
            await arrival.dismiss(no(self._reload.refused))
            return
        await arrival.say(yes())
        self._reload.begin(now=now)
        await arrival.dismiss(no(await self._reload.failed()))

    @property
    def addresses(self) -> list[str]:
        return [door.address for door in self._reception.doors]

    def facts(self) -> dict[str, Json]:
        """Return what `server.json` says."""
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
            "reloadWaitsFor": self._reload.waits_for,
        }


def _client(visit: Visit) -> Json:
    client = visit.client
    return {
        "number": visit.number,
        "name": None if client is None else client.caller.identity().originator,
        "pid": visit.pid,
        "since": visit.since,
        "unreadBytes": 0 if client is None else client.outgoing.unread,
    }


def _memory() -> int | None:
    """Return the bytes of this process in memory; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
