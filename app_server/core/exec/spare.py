"""A child that is forked ahead of time and waits for its one command, so that no command waits for the fork.

Runs in the launcher, for commands without namespaces; for the others `prepared` does the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from app_server.core.exec import wire


@dataclass(slots=True)
class Spare:
    fork: Callable[[], int]
    live: Callable[[socket.socket], None]
    """What the child does; its command arrives on the socket."""
    pid: int = 0
    """Of the child that waits; 0 where none does."""
    _socket: socket.socket | None = None

    @property
    def wanting(self) -> bool:
        """No child waits."""
        return self._socket is None

    def hand_over(self, request: wire.Value, descriptors: list[int]) -> int:
        """Gives the command to the child that waits, or to a new one, and gives its pid."""
        for last in (False, True):
            if self._socket is None:
                self.make()
            chosen, pid = self._socket, self.pid
            assert chosen is not None
            self._socket, self.pid = None, 0
            try:
                wire.send(chosen, request, descriptors)
            except OSError:
                if last:
                    raise
            else:
                return pid
            finally:
                chosen.close()
        raise AssertionError("unreachable")

    def replace(self) -> None:
        """Forks the next child. Where that fails now, `hand_over` tries again."""
        if self._socket is None:
            with contextlib.suppress(OSError):
                self.make()

    def make(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self.pid = self.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self.pid == 0:
            try:
                ours.close()
                self.live(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self._socket = ours

    def dismiss(self) -> None:
        """No command will come: the child ends."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self.pid = 0
