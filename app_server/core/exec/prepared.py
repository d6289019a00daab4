"""A prepared parent: holds namespaces made once and forks each confined command inside them.

Making a user and a network namespace and a private tree of mounts takes milliseconds and is the same for
every command; what differs (its pid, mount and ipc namespace, its roots) is made per command, by a fork
of this process. Runs in the launcher. The parent lives as long as the launcher wants it and its commands
run.
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

from app_server.core.exec import supervisor, wire

if sys.platform == "linux":
    from app_server.core.sandbox.confine import layers, namespaces, privileges, seccomp
    from app_server.core.sandbox.confine.syscalls import clone


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
    retired: bool = False
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

    def retire(self) -> None:
        """No more commands: it ends when its last one has."""
        if not self.retired:
            self.retired = True
            os.close(self.mounts)
            self._dismiss()
            with contextlib.suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    @property
    def wanting(self) -> bool:
        """No child waits, and none was asked for."""
        return self.waiting is None and not self.asked and not self.retired

    def replace(self) -> None:
        """Has the next child forked, if none waits."""
        if self.wanting:
            with contextlib.suppress(OSError):  # it has ended, which `hear` will tell
                wire.send(self.channel, ("another",), [])
                self.asked = True

    def hand_over(
        self, request: wire.Value, descriptors: list[int], names: tuple[bytes, ...]
    ) -> list[tuple[bytes, ...]]:
        """Gives the command to the child that waits, or to a new one. OSError where there is none to be had.

        What is given back are the names of commands that ended while a child was waited for.
        """
        given_back: list[tuple[bytes, ...]] = []
        for last in (False, True):
            while self.waiting is None:
                self.replace()
                heard = self.hear()
                if heard is None:
                    raise OSError(errno.ECHILD, "the prepared process ended")
                given_back.append(heard)
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
        return given_back

    def hear(self) -> tuple[bytes, ...] | None:
        """Takes in what it says. The names that a command held which has ended, none where it said something else; None
        where the parent itself has ended.
        """
        try:
            message = wire.receive(self.channel)
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
        self._dismiss()
        if not self.retired:
            self.retired = True
            os.close(self.mounts)
        return names

    def _dismiss(self) -> None:
        if self.waiting is not None:
            self.waiting[1].close()
            self.waiting = None

    def leave(self) -> None:
        """In a new child of the launcher: lets go of what is the launcher's."""
        self.channel.close()
        self._dismiss()


def prepare(confine: wire.Value, leave: Callable[[], None]) -> PreparedParent:
    """Forks a parent for commands confined like this one, and waits until its namespaces stand; OSError where the
    kernel refuses them.
    """
    mounts = os.open("/proc/self/mounts", os.O_RDONLY | os.O_CLOEXEC)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            leave()
            ours.close()
            os.close(mounts)
            _serve(theirs, confine)
        finally:
            os._exit(0)
    theirs.close()
    said = wire.receive(ours)
    if said is not None and said[0][0] == "unshared":
        try:
            namespaces.write_maps(pid)
            wire.send(ours, ("mapped",), [])
            said = wire.receive(ours)
        except OSError as error:
            said = ("refused", error.errno or 0, str(error)), []
    if said is None or said[0][0] != "ready":
        ours.close()
        os.close(mounts)
        code, text = said[0][1:] if said is not None else (0, "the prepared process ended")
        raise OSError(code, text)
    return PreparedParent(ours, pid, confine["network"], confine["home"], mounts)


def _serve(launcher: socket.socket, confine: wire.Value) -> None:
    """The life of the parent: makes its namespaces, then forks commands until there will be no more."""
    network, home = confine["network"], confine["home"]
    try:
        privileges.show()
        namespaces.unshare(network)
        wire.send(launcher, ("unshared",), [])
        wire.receive(launcher)
        privileges.hide()
        namespaces.prepare_mounts()
        privileges.forgo()
        seccomp.prepare(network=network, namespaces=True, read_only=False)
    except OSError as error:
        wire.send(launcher, ("refused", error.errno or 0, str(error.strerror or error)), [])
        return
    wire.send(launcher, ("ready",), [])
    wakeup = supervisor.watch_children()
    children: set[int] = set()
    poll = select.poll()
    poll.register(launcher, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    expecting = True
    while expecting or children:
        ready = {number for number, _ in poll.poll()}
        if wakeup in ready:
            supervisor.drain(wakeup)
            for pid in children.intersection(pid for pid, _ in supervisor.reap()):
                children.remove(pid)
                with contextlib.suppress(OSError):
                    wire.send(launcher, ("ended", pid), [])
        if launcher.fileno() in ready:
            if wire.receive(launcher) is None:
                expecting = False
                poll.unregister(launcher)
            else:
                children |= _another(launcher, home, confine["secrets"])


def _another(launcher: socket.socket, home: bytes, secrets: list[bytes]) -> set[int]:
    """Forks a child that waits for its command, and hands the launcher the way to it."""
    ours, theirs = socket.socketpair()
    pid = 0
    try:
        pid = clone(namespaces.PER_COMMAND)
        if pid == 0:
            try:
                ours.close()
                _live(theirs, launcher, home, secrets)
            finally:
                os._exit(0)
        wire.send(launcher, ("waits", pid), [ours.fileno()])
    except OSError as error:
        with contextlib.suppress(OSError):
            wire.send(launcher, ("refused", (error.errno or 0, str(error.strerror or error))), [])
    finally:
        ours.close()
        theirs.close()
    return {pid} if pid else set()


def _live(commands: socket.socket, launcher: socket.socket, home: bytes, secrets: list[bytes]) -> None:
    """The life of one command's process 1: what is the same for all, then what it is told, then the
    command.
    """
    launcher.close()
    refused: OSError | None = None
    shown = None
    try:
        shown = namespaces.enter(home, secrets)
    except OSError as error:
        refused = error
    wakeup = supervisor.watch_children()
    message = wire.receive(commands)
    if message is None:
        return
    commands.close()
    request, descriptors = message
    try:
        if refused is not None:
            raise refused
        layers.with_namespaces(request["confine"], request["env"], shown)
    except OSError as error:
        supervisor.report(descriptors[0], ("unavailable", error.errno or 0, str(error.strerror or error)))
        return
    supervisor.supervise(request, descriptors, wakeup, None, whole=True)
