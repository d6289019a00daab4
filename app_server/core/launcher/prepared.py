"""The launcher's side of a prepared parent, a process with reusable namespaces (see `parent`).

It tracks the child that waits for the next command, the running commands with their placeholder directories, and
whether the parent must be replaced. Runs in the launcher. Messages on the channel:

    parent → launcher: unshared, ready | refused    while it starts
    launcher → parent: mapped, another              the maps are written; fork a child
    parent → launcher: waits pid + socket           the child that will run the next command
    parent → launcher: refused error                no child could be forked
    parent → launcher: ended pid, follows           a command's process 1 has ended; another child is forked or refused
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import sys
from collections.abc import Callable

from app_server.core.launcher import parent, wire
from app_server.core.sandbox.confine.light_dataclasses import dataclass, field

if sys.platform == "linux":
    from app_server.core.sandbox.confine import namespaces


@dataclass(slots=True)
class PreparedParent:
    """The launcher's side."""

    channel: socket.socket
    pid: int
    network: bool
    home: bytes
    """The server's home, whose secrets its commands do not see."""
    mounts: int
    """A descriptor of /proc/self/mounts, which the kernel signals when the host's mounts change."""
    draining: bool = False
    commands: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Running commands by the pid of their process 1, with the placeholder directories that each holds."""
    waiting: tuple[int, socket.socket] | None = None
    """The child that waits for a command: its pid, and the socket for the command."""
    child_requested: bool = False
    """A request for another child is on its way."""

    def stale(self) -> bool:
        """Tell whether the host's mounts have changed: its commands would see the old ones."""
        poll = select.poll()
        poll.register(self.mounts, select.POLLPRI)
        return bool(poll.poll(0))

    def drain(self) -> None:
        """Give it no more commands; it ends after its last one."""
        if not self.draining:
            self.draining = True
            os.close(self.mounts)
            self._close_child()
            with contextlib.suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    @property
    def wanting(self) -> bool:
        """Whether no child waits or is requested."""
        return self.waiting is None and not self.child_requested and not self.draining

    def replace(self) -> None:
        """Request the next child if none waits."""
        if self.wanting:
            with contextlib.suppress(OSError):  # it has ended, which `on_readable` will report
                wire.send(self.channel, ("another",), [])
                self.child_requested = True

    def hand_over(
        self,
        request: wire.Value,
        descriptors: list[int],
        names: tuple[bytes, ...],
        release: Callable[[tuple[bytes, ...]], None],
    ) -> None:
        """Pass the command to the waiting child, or to a new one. Raises OSError if there is none.

        `release` is called with the names of each command that ends meanwhile. The second attempt is for a child that
        was killed while it waited.
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
        """Handle one message. Returns the names of a command that has ended, () after any other message, and None if
        the parent itself has ended. Raises OSError if the parent could not fork a child.
        """
        try:
            message = wire.receive(self.channel)
        except wire.Truncated:  # the socket of a waiting child was lost, so that child ends
            self.child_requested = False
            raise
        except OSError:
            message = None
        if message is None:
            return None
        (kind, value), descriptors = message
        match kind:
            case "waits":
                self.child_requested = False
                self._close_child()
                self.waiting = value, socket.socket(fileno=descriptors[0])
                if self.draining:
                    self._close_child()
                return ()
            case "refused":
                self.child_requested = False
                raise OSError(*value)
            case _:
                pid, follows = value
                self.child_requested = self.child_requested or follows
                return self.commands.pop(pid, ())

    def forget(self) -> tuple[bytes, ...]:
        """Return the names of all its commands, after the parent has ended and its commands with it."""
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
        """Close, in a new child of the launcher, the launcher's descriptors."""
        self.channel.close()
        self._close_child()


def prepare(confine: wire.Value, leave: Callable[[], None]) -> PreparedParent:
    """Fork a parent for commands with this confinement, and wait until its namespaces exist. Raises OSError if the
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
    """Write the uid and gid maps of a new parent after its `unshare`, and wait until it is ready."""
    message = wire.receive(channel)
    if message is not None and message[0][0] == "unshared":
        try:
            namespaces.write_maps(pid)
            wire.send(channel, ("mapped",), [])
            message = wire.receive(channel)
        except OSError as error:
            raise OSError(_unless_ended(error.errno, pid), str(error)) from error
    if message is None:
        raise OSError(errno.ECHILD, "the prepared process ended")
    if message[0][0] != "ready":
        code, text = message[0][1:]
        raise OSError(code, text)


def _unless_ended(code: int | None, pid: int) -> int:
    """Return ECHILD if the process has ended, since then its maps cannot be written; otherwise the error itself."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return errno.ECHILD if ended else code or 0
