"""The end of a shared server: on request, or because it is idle.

Order of an end:

1. Names and locks are released, so that the next client starts another server without waiting.
2. Running turns go on for a while; the rest is interrupted.
3. Every client is notified, and the server ends.

A server that retires, after an upgrade, releases the same, but serves its present clients until the last of them has
left.
"""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

import anyio
from anyio.abc import TaskStatus

from app_server.engine.config.config_values import SharingSettings
from app_server.engine.support.filelock import LockHeld, hold
from app_server.server.composition import Server
from app_server.server.daemon.acceptor import Acceptor
from app_server.server.daemon.binding import BoundSocket
from app_server.server.daemon.listeners import Listener

log = logging.getLogger(__name__)

INTERRUPTS_WITHIN = 5
"""Time in which all work is interrupted and stored, in seconds."""

LONGEST_LOOK = 15
"""Longest interval between two checks for activity, in seconds."""


class Shutdown:
    """The lifetime of the process, from its first client to its end."""

    def __init__(
        self,
        server: Server,
        reception: Acceptor,
        settings: SharingSettings,
        environment: Mapping[str, str],
        *,
        stays: str | None = None,
    ) -> None:
        """Begin to serve. `stays` is the reason why the server cannot retire; None if it can."""
        self._server, self._reception = server, reception
        self._settings, self._environment, self.stays = settings, environment, stays
        self._stopping, self._now, self._retired = anyio.Event(), anyio.Event(), anyio.Event()

    async def run(self, announce: Callable[[], None]) -> None:
        """Return once everything has ended cleanly. `announce` is called once signals are handled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._obey_signals, name="signals")
            announce()
            tasks.start_soon(self._leave_when_idle, name="idle exit")
            tasks.start_soon(self._leave_with_last_client, name="retirement")
            await self._stopping.wait()
            await self._drain()
            await self._say_goodbye()
            tasks.cancel_scope.cancel()

    def stop(self, *, now: bool = False) -> None:
        """Begin the end; if `now`, or on a second call, interrupt the running work."""
        if now or self._stopping.is_set():
            self._now.set()
        self._give_up_places()
        self._stopping.set()

    def ends_within(self, *, now: bool) -> float:
        """Return the time after `stop` in which the process ends, if nothing in it hangs, in seconds."""
        turns = 0 if now else self._settings.drain_seconds
        return turns + 2 * INTERRUPTS_WITHIN

    def retire(self, *, now: bool = False) -> None:
        """Release the places for another server, and end with the last client; if `now`, end as by `stop`."""
        if self.stays is not None:
            log.warning("this server keeps its place: %s", self.stays)
            return
        log.info("another server can have the place of this one, which leaves with its last client")
        self._give_up_places()
        self._retired.set()
        if now:
            self.stop(now=True)

    async def _obey_signals(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                log.info("received %s", number.name)
                if number == signal.SIGHUP:  # the server outlives the terminal
                    self.retire()
                else:
                    self.stop(now=number == signal.SIGINT)

    # --- the end
    def _give_up_places(self) -> None:
        if self._reception.closed:
            return
        places = [held for _, held in self._places()]
        for held in places:
            held.unlink()
        self._reception.stop_listening()
        for held in places:
            held.release()

    def _places(self) -> list[tuple[Listener, BoundSocket]]:
        return [(door, door.held) for door in self._reception.doors if door.held is not None]

    async def _drain(self) -> None:
        """Wait until the turns have ended, as long as they may take, and then end everything."""
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
        """End every connection, after all its output was written."""
        for client in self._reception.clients:
            client.scope.cancel()
        with anyio.move_on_after(INTERRUPTS_WITHIN):
            while self._reception.clients:
                await self._reception.left.wait()

    # --- retirement
    async def _leave_with_last_client(self) -> None:
        """After retiring, unload idle conversations, so that the other server can open them, and stop after the last
        client has left. A turn that runs then goes on; a turn that waits for an answer ends, because no client can
        answer it.
        """
        await self._retired.wait()
        while self._reception.present or self._can_go_on_alone():
            await self._server.unload_idle()
            with anyio.move_on_after(LONGEST_LOOK):
                await self._reception.left.wait()
        log.info("the last client has left")
        self.stop()

    def _can_go_on_alone(self) -> bool:
        work = self._server.work
        return bool(work.turns) and not work.questions

    # --- idleness
    async def _leave_when_idle(self) -> None:
        seconds = self._settings.idle_exit_minutes * 60 or math.inf
        if not self._reception.doors:
            return
        busy_until = anyio.current_time()
        while not self._reception.closed:
            await anyio.sleep(min(seconds / 4, LONGEST_LOOK))
            now = anyio.current_time()
            if self._reception.present or self._server.work.any:
                busy_until = now
            idle = now - max(busy_until, self._reception.quiet_since)
            is_over = idle >= seconds or (idle > 0 and self._is_lost())
            if is_over and not self._reception.closed and self._leave_unseen():
                log.info("nobody has needed this server for %g minutes", idle / 60)
                self._stopping.set()

    def _is_lost(self) -> bool:
        """Return whether no client can find this server: it listens only at sockets whose folders were deleted."""
        doors = self._reception.doors
        return all(door.held is not None and not os.path.exists(door.held.place.folder) for door in doors)

    def _leave_unseen(self) -> bool:
        """Release the places unless a client is connecting. No client meets a server that has ended: it waits for the
        lock of the start, or is accepted here, or its connection ends without an answer, and it connects again. A place
        whose folder was deleted has no such lock, and no client comes to it.
        """
        with ExitStack() as locks:
            try:
                for _, held in self._places():
                    with suppress(FileNotFoundError):
                        locks.callback(os.close, hold(held.place.startup_lock))
            except (LockHeld, OSError):
                return False
            if self._has_waiting():
                return False
            bound = [(door, held) for door, held in self._places() if held.is_bound]
            for _, held in bound:
                held.unlink()
            if not self._has_waiting():
                self._give_up_places()
                return True
            for door, held in bound:
                self._listen_anew(door, held)
            return False

    def _has_waiting(self) -> bool:
        try:
            return self._reception.accept_waiting()
        except OSError:  # the system has no resources to accept a connection, so one may wait
            return True

    def _listen_anew(self, door: Listener, held: BoundSocket) -> None:
        try:
            listening = held.listen(self._environment)
        except Exception as error:  # its clients are served, and new clients find another server
            log.error("cannot listen on %s again: %s", door.address, error)
            return
        self._reception.replace(door, listening)
