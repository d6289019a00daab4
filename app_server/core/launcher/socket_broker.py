"""The socket broker: answers the calls of confined commands that need a look at where a unix socket leads.

One process per prepared parent, in its namespaces but not in those of its commands; forked when a command first asks,
so that only those pay for it. Each call is answered in a thread of its own: a path on a dead file system, or a server
that takes no connections, holds up nobody else. Standard library only.
"""

from __future__ import annotations

import _thread
import array
import contextlib
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from app_server.core.launcher import wire

if sys.platform == "linux":
    from app_server.core.sandbox.confine import listening, notify, privileges, sockets
    from app_server.core.sandbox.confine.syscalls import CLONE_NEWNET, call

MAX_WAITING = 128
"""Calls of one command that wait at the same time."""


@dataclass(slots=True)
class BrokerDoor:
    """What a prepared parent keeps for its broker: the way to it, and the lists of sockets that it needs."""

    network: bool
    requests: socket.socket
    """The broker's end."""
    commands: socket.socket
    """The commands' end: a descriptor on which calls arrive, and which capabilities over files they have."""
    outside: socket.socket | None
    inside: socket.socket | None = None
    pid: int = 0

    @classmethod
    def make(cls, *, network: bool) -> BrokerDoor:
        """To be called in the network namespace of the server."""
        requests, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(network, requests, commands, _list())

    def enter(self) -> None:
        """To be called in the network namespace of the commands. With the network on that is the server's, and the
        broker makes one of its own for unix sockets.
        """
        if not self.network:
            self.inside = _list()

    def hand_over(self, listener: int, mask: int) -> None:
        """In a command's process 1: has its calls answered."""
        with contextlib.suppress(OSError):
            self.commands.sendmsg([mask.to_bytes(8, "little")], wire.descriptors_message([listener]))

    def fork(self, leave: Callable[[], None]) -> None:
        """Starts the broker; OSError where there is no room for it now."""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                leave()
                self.commands.close()
                _live(self)
            except OSError:  # or the next broker would be asked the same
                self.requests.recvmsg(8, socket.CMSG_SPACE(4), wire.RECEIVE_FLAGS)
            finally:
                os._exit(0)


def _list() -> socket.socket | None:
    try:
        return listening.open_list()
    except OSError:
        return None


def _live(door: BrokerDoor) -> None:
    if door.network:
        with contextlib.suppress(OSError):  # no unix sockets then, but the network
            call("unshare", CLONE_NEWNET)
            door.inside = _list()
    privileges.keep(privileges.TRACING | privileges.FILE_CAPABILITIES)
    Broker(door.requests, sockets.World(door.inside, door.outside)).serve()


@dataclass(slots=True)
class Broker:
    requests: socket.socket
    world: sockets.World
    masks: dict[int, int] = field(default_factory=dict)
    """By listener: the capabilities over files that its command has."""
    waiting: dict[int, set[int]] = field(default_factory=dict)
    """By listener: the ids of the calls that are being answered."""

    def serve(self) -> None:
        """Answers until all commands, and whoever could start more, are gone."""
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        expecting = True
        while expecting or self.masks:
            for number, event in poll.poll():
                if number == self.requests.fileno():
                    expecting = self._adopt(poll)
                    if not expecting:
                        poll.unregister(self.requests)
                elif event & select.POLLIN:
                    self._take(number)
                else:  # nobody is left who could call
                    poll.unregister(number)
                    del self.masks[number], self.waiting[number]
                    os.close(number)

    def _adopt(self, poll: select.poll) -> bool:
        data, ancillary, _, _ = self.requests.recvmsg(8, socket.CMSG_SPACE(4), wire.RECEIVE_FLAGS)
        descriptors = array.array("i")
        for _, _, sent in ancillary:
            descriptors.frombytes(sent)
        for listener in descriptors:
            self.masks[listener] = int.from_bytes(data, "little")
            self.waiting[listener] = set()
            poll.register(listener, select.POLLIN)
        return bool(data)

    def _take(self, listener: int) -> None:
        with contextlib.suppress(OSError):  # its process is gone
            taken = notify.take(listener)
            waiting = self.waiting[listener]
            if len(waiting) >= MAX_WAITING:
                notify.answer(listener, taken, errno=errno.EAGAIN)
            else:
                waiting.add(taken.id)
                # A number of its own: the thread may outlast the command.
                own = os.dup(listener)
                _thread.start_new_thread(_answer, (own, taken, self.world, self.masks[listener], waiting))


def _answer(listener: int, taken: notify.Call, world: sockets.World, mask: int, waiting: set[int]) -> None:
    try:
        privileges.keep(privileges.TRACING | mask)
        sockets.serve(listener, taken, world)
    finally:
        waiting.discard(taken.id)
        os.close(listener)
