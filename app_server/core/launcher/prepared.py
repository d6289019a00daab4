"""The launcher's side of a prepared parent, which holds namespaces that are made once (see `parent`).

It knows the child that waits for the next command and where to send it, which commands run and what they hold,
and when the parent must be replaced. Runs in the launcher.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from app_server.core.launcher import parent, wire

if sys.platform == "linux":
    from app_server.core.sandbox.confine import namespaces


@dataclass(slots=True)
class PreparedParent:
    """The launcher's side."""

    channel: socket.socket
    pid: int
    network: bool
    home: bytes
    """The server's home, which its commands find covered."""
    mounts: int
    """A descriptor that tells of changes of the host's mounts."""
    draining: bool = False
    commands: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Running commands by the pid of their process 1, and the names that each holds."""
    waiting: tuple[int, socket.socket] | None = None
    """The child that waits for its command: its pid, and where the command is to be sent."""
    asked: bool = False
    """It was asked for another child."""

    def stale(self) -> bool:
        """The host's mounts have changed since: what it would show is not what is there."""
        poll = select.poll()
        poll.register(self.mounts, select.POLLPRI)
        return bool(poll.poll(0))

    def drain(self) -> None:
        """No more commands: it ends when its last one has."""
        if not self.draining:
            self.draining = True
            os.close(self.mounts)
            self._close_child()
            with contextlib.suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    @property
    def wanting(self) -> bool:
        """No child waits, and none was asked for."""
        return self.waiting is None and not self.asked and not self.draining

    def replace(self) -> None:
        """Has the next child forked, if none waits."""
        if self.wanting:
            with contextlib.suppress(OSError):  # it has ended, which `on_readable` will report
                wire.send(self.channel, ("another",), [])
                self.asked = True

    def hand_over(
        self,
        request: wire.Value,
        descriptors: list[int],
        names: tuple[bytes, ...],
        release: Callable[[tuple[bytes, ...]], None],
    ) -> None:
        """Gives the command to the child that waits, or to a new one. OSError where there is none to be had.

        `release` is called with the names of each command that ends while a child is waited for.
        """
        for last in (False, True):
            while self.waiting is None:
                self.replace()
                names_of_ended = self.on_readable()
                if names_of_ended is None:
                    raise OSError(errno.ECHILD, "the prepared process ended")
                release(names_of_ended)
            (pid, chosen), self.waiting = self.waiting, None
            try:
                wire.send(chosen, request, descriptors)
            except OSError:
                if last:
                    raise
            else:
                self.commands[pid] = names
                break
            finally:
                chosen.close()

    def on_readable(self) -> tuple[bytes, ...] | None:
        """Takes in what it says. The names that a command held which has ended, none where it said something else; None
        where the parent itself has ended.
        """
        try:
            message = wire.receive(self.channel)
        except wire.Truncated:  # the way to a child that waits, which ends as nobody has it
            self.asked = False
            raise
        except OSError:
            message = None
        if message is None:
            return None
        (kind, value), descriptors = message
        match kind:
            case "waits":
                self.asked = False
                self.waiting = value, socket.socket(fileno=descriptors[0])
                return ()
            case "refused":
                self.asked = False
                raise OSError(*value)
            case _:
                return self.commands.pop(value, ())

    def forget(self) -> tuple[bytes, ...]:
        """Everything that its commands held: it is gone, and they with it."""
        names = tuple(name for held in self.commands.values() for name in held)
        self.commands.clear()
        self._close_child()
        if not self.draining:
            self.draining = True
            os.close(self.mounts)
        return names

    def _close_child(self) -> None:
        if self.waiting is not None:
            self.waiting[1].close()
            self.waiting = None

    def leave(self) -> None:
        """In a new child of the launcher: lets go of what is the launcher's."""
        self.channel.close()
        self._close_child()


def prepare(confine: wire.Value, leave: Callable[[], None]) -> PreparedParent:
    """Forks a parent for commands confined like this one, and waits until its namespaces stand; OSError where the
    kernel refuses them.
    """
    with contextlib.ExitStack() as kept:
        mounts = os.open("/proc/self/mounts", os.O_RDONLY | os.O_CLOEXEC)
        kept.callback(os.close, mounts)
        ours, theirs = socket.socketpair()
        kept.callback(ours.close)
        with theirs:
            pid = os.fork()
            if pid == 0:
                try:
                    leave()
                    ours.close()
                    os.close(mounts)
                    parent.serve(theirs, confine)
                finally:
                    os._exit(0)
        _await_namespaces(ours, pid)
        kept.pop_all()
        return PreparedParent(ours, pid, confine["network"], confine["home"], mounts)


def _await_namespaces(channel: socket.socket, pid: int) -> None:
    """Writes the maps of a new parent when it asks for them, and waits until it is ready."""
    said = wire.receive(channel)
    if said is not None and said[0][0] == "unshared":
        try:
            namespaces.write_maps(pid)
            wire.send(channel, ("mapped",), [])
            said = wire.receive(channel)
        except OSError as error:
            raise OSError(_unless_ended(error.errno, pid), str(error)) from error
    if said is None:
        raise OSError(errno.ECHILD, "the prepared process ended")
    if said[0][0] != "ready":
        code, text = said[0][1:]
        raise OSError(code, text)


def _unless_ended(code: int | None, pid: int) -> int:
    """The error number; that of a child that is gone where this is why the maps could not be written."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return errno.ECHILD if ended else code or 0
