"""When a shared server ends, and how: because it is told to, or because nobody needs it.

The order of an end: names and locks are given up, so that the next client starts another server and waits for nothing;
turns go on for a while; what is left is interrupted; every client is told; then it leaves.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Protocol

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct

from app_server.core.config.types import SharingSettings
from app_server.places.locks import LockHeld, hold
from app_server.server import Work
from app_server.shared.arrivals import Doorway
from app_server.shared.binding import HeldPlace
from app_server.shared.reception import Reception

log = logging.getLogger(__name__)

INTERRUPTS_WITHIN = 5
"""Seconds for everything to be interrupted and stored."""

LONGEST_LOOK = 15
"""Seconds between two looks at whether anything goes on."""


class Working(Protocol):
    """A server with its work, as `app_server.server.Server`."""

    @property
    def work(self) -> Work: ...

    async def settle(self) -> None:
        """Begin nothing any more, and wait for what runs."""
        ...

    async def end_conversations(self) -> None:
        """Interrupt and store everything."""
        ...


class ListeningPlace(Struct, eq=False):
    """A place whose lock this process holds, and the socket there."""

    held: HeldPlace
    door: Doorway


class Lifetime:
    """From the first client to the end of the process."""

    def __init__(
        self,
        server: Working,
        reception: Reception,
        places: list[ListeningPlace],
        settings: SharingSettings,
        environment: Mapping[str, str],
    ) -> None:
        self._server, self._reception, self._places = server, reception, places
        self._settings, self._environment = settings, environment
        self._stopping, self._now = anyio.Event(), anyio.Event()
        self.reload: Callable[[], None] = lambda: None
        """Called on SIGHUP."""

    async def run(self, announce: Callable[[], None]) -> None:
        """Return once everything has ended in order. `announce` is called when signals are obeyed."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._obey_signals, name="signals")
            announce()
            tasks.start_soon(self._leave_when_idle, name="idle exit")
            await self._stopping.wait()
            await self._drain()
            await self._say_goodbye()
            tasks.cancel_scope.cancel()

    def stop(self, *, now: bool = False) -> None:
        """Begin the end; `now`, or a second time: interrupt what runs."""
        if now or self._stopping.is_set():
            self._now.set()
        self._give_up_places()
        self._stopping.set()

    async def _obey_signals(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                log.info("received %s", number.name)
                if number == signal.SIGHUP:  # a terminal that goes away ends nothing
                    self.reload()
                else:
                    self.stop(now=number == signal.SIGINT)

    # --- the end
    def _give_up_places(self) -> None:
        if self._reception.closed:
            return
        for place in self._places:
            place.held.unlink()
        self._reception.stop_listening()
        for place in self._places:
            place.held.release()

    async def _drain(self) -> None:
        """Wait until the turns have ended, as long as they may, and then end everything."""
        log.info("stopping; running: %s", self._server.work)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(self._cancel_now, waiting.cancel_scope)
            with anyio.move_on_after(self._settings.drain_seconds):
                await self._server.settle()
            waiting.cancel_scope.cancel()
        with anyio.move_on_after(INTERRUPTS_WITHIN):
            await self._server.end_conversations()

    async def _cancel_now(self, scope: anyio.CancelScope) -> None:
        await self._now.wait()
        scope.cancel()

    async def _say_goodbye(self) -> None:
        """End every connection, behind all that was said on it."""
        for visit in list(self._reception.visits.values()):
            visit.scope.cancel()
        with anyio.move_on_after(INTERRUPTS_WITHIN):
            while self._reception.visits:
                await self._reception.left.wait()

    # --- nobody needs it
    async def _leave_when_idle(self) -> None:
        seconds = self._settings.idle_exit_minutes * 60
        if not seconds or not self._reception.doors:
            return
        busy_until = anyio.current_time()
        while not self._stopping.is_set():
            await anyio.sleep(min(seconds / 4, LONGEST_LOOK))
            now = anyio.current_time()
            if not self._reception.is_empty or self._server.work.any:
                busy_until = now
            if now - max(busy_until, self._reception.quiet_since) >= seconds and self._leave_unseen():
                log.info("nobody has needed this server for %g minutes", seconds / 60)
                self._stopping.set()

    def _leave_unseen(self) -> bool:
        """Leave the places unless somebody comes, or is about to. No client meets a server that has gone: it waits for
        the lock of the start, or is accepted here, or its connection ends without an answer, and it begins anew.
        """
        with ExitStack() as locks:
            try:
                for place in self._places:
                    locks.callback(os.close, hold(place.held.place.startup_lock))
            except (LockHeld, OSError):
                return False
            if self._has_waiting():
                return False
            bound = [place for place in self._places if place.held.is_bound]
            for place in bound:
                place.held.unlink()
            if not self._has_waiting():
                self._give_up_places()
                return True
            for place in bound:
                self._bind_anew(place)
            return False

    def _has_waiting(self) -> bool:
        try:
            return self._reception.accept_waiting()
        except OSError:  # nothing is left for a connection, so there may be one
            return True

    def _bind_anew(self, place: ListeningPlace) -> None:
        try:
            listening = place.held.bind(self._environment)
        except Exception as error:  # its clients are served, and new ones find another server
            log.error("cannot listen on %s again: %s", place.door.address, error)
            return
        with suppress(OSError):
            place.held.link_reference()
        self._reception.replace(place.door, listening)
