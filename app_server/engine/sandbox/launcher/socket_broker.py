"""The socket broker: serves system calls of confined commands that create or connect unix sockets.

There is one process per prepared parent, in the parent's namespaces but not in those of its commands. It is forked at
the first such call, so that other commands do not pay for it. Each call is served in its own thread, because a path on
a dead file system or a server that does not accept would block the others. It uses the standard library only.
"""

from __future__ import annotations

import _thread
import errno
import os
import select
import sys

from app_server.engine.sandbox.launcher import launcher_wire
from app_server.engine.sandbox.launcher.stdlib_min import Callable, signal, socket, suppress
from app_server.engine.support.light_dataclasses import dataclass, field

if sys.platform == "linux":
    from app_server.engine.sandbox.launcher import enforce, launcher_sockets
    from app_server.engine.sandbox.launcher.syscalls import CLONE_NEWNET, call

MAX_WAITING = 128
"""Maximum number of concurrent calls of one command; further ones fail with EAGAIN."""


@dataclass(slots=True)
class BrokerHandle:
    """A prepared parent's side of its broker: the socket pair, and the socket lists that the broker needs."""

    network: bool
    requests: socket.socket
    """The broker's end of the socket pair."""
    commands: socket.socket
    """The commands' end of the socket pair, on which a command sends its seccomp listener and its file capabilities."""
    outside: socket.socket | None
    inside: socket.socket | None = None
    pid: int = 0

    @classmethod
    def create(cls, *, network: bool) -> BrokerHandle:
        """Return a handle. It must be called in the network namespace of the server."""
        requests, commands = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(network, requests, commands, _list())

    def enter(self) -> None:
        """Open the list of the commands' sockets. It must be called in the network namespace of the commands. If the
        network is on, that is the server's, and the broker creates its own for unix sockets.
        """
        if not self.network:
            self.inside = _list()

    def hand_over(self, listener: int, mask: int) -> None:
        """In a command's process 1, send the listener to the broker, which serves its calls from then on."""
        with suppress(OSError):
            self.commands.sendmsg([mask.to_bytes(8, "little")], launcher_wire.descriptors_message([listener]))

    def fork(self, leave: Callable[[], None]) -> None:
        """Start the broker. Raises OSError in a shortage."""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                leave()
                self.commands.close()
                _run_broker(self)
            except OSError:  # drop the request; otherwise the next broker would fail on it as well
                self.requests.recvmsg(8, socket.CMSG_SPACE(4), launcher_wire.RECEIVE_FLAGS)
            finally:
                os._exit(0)


def _list() -> socket.socket | None:
    try:
        return launcher_sockets.open_list()
    except OSError:
        return None


def _run_broker(handle: BrokerHandle) -> None:
    if handle.network:
        with suppress(OSError):  # without it, commands have the network but no unix sockets
            call("unshare", CLONE_NEWNET)
            handle.inside = _list()
    enforce.keep_only(enforce.TRACING | enforce.FILE_CAPABILITIES)
    Broker(handle.requests, launcher_sockets.NetworkNamespaces(handle.inside, handle.outside)).serve()


@dataclass(slots=True)
class Broker:
    requests: socket.socket
    networks: launcher_sockets.NetworkNamespaces
    masks: dict[int, int] = field(default_factory=dict)
    """File capabilities of each command, by listener."""
    waiting: dict[int, set[int]] = field(default_factory=dict)
    """Ids of the calls in progress, by listener."""

    def serve(self) -> None:
        """Serve until all commands and the prepared parent have ended."""
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
                    self._receive_call(number)
                else:  # every process with this filter has ended
                    poll.unregister(number)
                    del self.masks[number], self.waiting[number]
                    os.close(number)

    def _adopt(self, poll: select.poll) -> bool:
        data, ancillary, _, _ = self.requests.recvmsg(8, socket.CMSG_SPACE(4), launcher_wire.RECEIVE_FLAGS)
        for listener in launcher_wire.descriptors_of(ancillary):
            self.masks[listener] = int.from_bytes(data, "little")
            self.waiting[listener] = set()
            poll.register(listener, select.POLLIN)
        return bool(data)

    def _receive_call(self, listener: int) -> None:
        with suppress(OSError):  # the calling process has ended
            notified = launcher_sockets.receive_call(listener)
            waiting = self.waiting[listener]
            if len(waiting) >= MAX_WAITING:
                launcher_sockets.respond(listener, notified, errno=errno.EAGAIN)
            else:
                waiting.add(notified.id)
                # The listener is duplicated, because the thread may outlive the command, whose listener is then closed.
                own = os.dup(listener)
                _thread.start_new_thread(
                    _serve_call, (own, notified, self.networks, self.masks[listener], waiting)
                )


def _serve_call(
    listener: int,
    notified: launcher_sockets.Call,
    networks: launcher_sockets.NetworkNamespaces,
    mask: int,
    waiting: set[int],
) -> None:
    try:
        enforce.keep_only(enforce.TRACING | mask)
        launcher_sockets.serve(listener, notified, networks)
    finally:
        waiting.discard(notified.id)
        os.close(listener)
