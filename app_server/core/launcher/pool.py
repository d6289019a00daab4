"""Processes that wait to supervise a command, forked ahead of time and kept for the next one.

No command waits for a fork, and most cost none: a supervisor whose command left nothing behind takes another. Runs in
the launcher, for commands without namespaces; confined ones each get a process of their own (see `prepared`).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app_server.core.launcher import wire

FREE = b"+"
"""What a supervisor says when it can take another command."""

MAX_WAITING = 4
"""More than this many commands at once are rare; what was forked for them ends with them."""


@dataclass(slots=True)
class SupervisorPool:
    fork: Callable[[], int]
    run_child: Callable[[socket.socket], None]
    """What a supervisor does; its commands arrive on the socket, on which it says when it is free again."""
    waiting: list[tuple[int, socket.socket]] = field(default_factory=list)
    """The pid of each and the way to it; the one that was used last, whose memory is at hand, comes last."""
    busy: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)
    """By the number of the socket."""

    @property
    def wanting(self) -> bool:
        """Nobody waits."""
        return not self.waiting

    def hand_over(self, request: wire.Value, descriptors: list[int]) -> None:
        """Gives the command to one that waits, or to a new one."""
        while self.waiting:
            with contextlib.suppress(OSError):  # that one has ended
                self._send(request, descriptors)
                return
        self._make(descriptors)
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
        """Forks one that will wait, where nobody does. Where that fails now, `hand_over` tries again."""
        if self.wanting:
            with contextlib.suppress(OSError):
                self._make()

    def on_readable(self, ready: set[int]) -> None:
        """Takes back those of the busy ones, by the numbers of their sockets, that are free or have ended."""
        for number in ready.intersection(self.busy):
            pid, its = self.busy.pop(number)
            if _is_free(its) and len(self.waiting) < MAX_WAITING:
                self.waiting.append((pid, its))
            else:
                its.close()

    @property
    def pids(self) -> set[int]:
        return {pid for pid, _ in (*self.waiting, *self.busy.values())}

    def close_children(self) -> None:
        """No more commands: those that wait end now, the others with theirs. Also what a new child calls, to let go of
        its parent's sockets.
        """
        for _, its in (*self.waiting, *self.busy.values()):
            its.close()
        self.waiting.clear()
        self.busy.clear()

    def _make(self, descriptors: Sequence[int] = ()) -> None:
        """A new one, which lets go of its copies of the descriptors at hand: it is sent its own, and whoever reads the
        other ends waits for the last copy to be closed.
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


def _is_free(its: socket.socket) -> bool:
    try:
        return its.recv(len(FREE)) == FREE
    except OSError:
        return False
