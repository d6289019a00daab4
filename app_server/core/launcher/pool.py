"""A pool of supervisor processes, forked ahead of time and reused.

After the first, no command waits for a fork, and most need none: a supervisor whose command left no process behind gets
another command. None is forked ahead of the first, since many servers run confined commands only.
Runs in the launcher, for commands without namespaces; a confined command gets a new process (see `prepared`).
"""

from __future__ import annotations

import os

from app_server.core.launcher import wire
from app_server.core.sandbox.confine.light import Callable, Sequence, socket, suppress
from protocol.light_dataclasses import dataclass, field

FREE = b"+"
"""The message of a supervisor that is ready for another command."""

MAX_WAITING = 4
"""Idle supervisors that are kept; more concurrent commands than this are rare."""


@dataclass(slots=True)
class SupervisorPool:
    fork: Callable[[], int]
    run_child: Callable[[socket.socket], None]
    """Main function of a supervisor. It receives commands on the socket and sends FREE on it."""
    waiting: list[tuple[int, socket.socket]] = field(default_factory=list)
    """Pid and socket of each. The last one is used next: it ran last, so its memory is still cached."""
    busy: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)
    """Pid and socket, by the socket's descriptor."""
    used: bool = False
    """There was a command, so there may be another."""

    @property
    def wanting(self) -> bool:
        """Whether a supervisor should be forked ahead: none is idle."""
        return self.used and not self.waiting

    def hand_over(self, request: wire.Value, descriptors: list[int]) -> None:
        """Pass the command to an idle supervisor, or to a new one."""
        self.used = True
        while self.waiting:
            with suppress(OSError):  # that one has ended
                self._send(request, descriptors)
                return
        self._fork_idle(descriptors)
        self._send(request, descriptors)

    def _send(self, request: wire.Value, descriptors: list[int]) -> None:
        pid, chosen = self.waiting.pop()
        try:
            wire.send(chosen, request, descriptors)
        except OSError:
            chosen.close()
            raise
        self.busy[chosen.fileno()] = pid, chosen

    def replace(self) -> None:
        """Fork an idle supervisor if one is wanted. If that fails, `hand_over` tries again."""
        if self.wanting:
            with suppress(OSError):
                self._fork_idle()

    def on_readable(self, ready: set[int]) -> None:
        """Handle messages of busy supervisors: they are free again or have ended."""
        for number in ready.intersection(self.busy):
            pid, sock = self.busy.pop(number)
            if _is_free(sock) and len(self.waiting) < MAX_WAITING:
                self.waiting.append((pid, sock))
            else:
                sock.close()

    @property
    def pids(self) -> set[int]:
        return {pid for pid, _ in (*self.waiting, *self.busy.values())}

    def close_children(self) -> None:
        """Close all sockets: idle supervisors end now, busy ones after their command. New children call it too, to
        close their copies.
        """
        for _, sock in (*self.waiting, *self.busy.values()):
            sock.close()
        self.waiting.clear()
        self.busy.clear()

    def _fork_idle(self, descriptors: Sequence[int] = ()) -> None:
        """Fork a supervisor. The child closes its inherited copies of `descriptors`: it receives its own, and the
        reader of a pipe sees no end until the last copy is closed.
        """
        ours, theirs = socket.socketpair()
        try:
            pid = self.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            try:
                ours.close()
                for number in descriptors:
                    os.close(number)
                self.run_child(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.waiting.append((pid, ours))


def _is_free(sock: socket.socket) -> bool:
    try:
        return sock.recv(len(FREE)) == FREE
    except OSError:
        return False
