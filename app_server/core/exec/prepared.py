"""A prepared parent: holds namespaces made once and forks each confined command inside them.

Making a user and a network namespace and a private tree of mounts takes milliseconds and is the same for
every command; what differs (its pid, mount and ipc namespace, its roots) is made per command, by a fork
of this process. Runs in the launcher. The parent lives as long as the launcher wants it and its commands
run.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from app_server.core.exec import supervisor, wire
from app_server.core.exec.spare import Spare

if sys.platform == "linux":
    from app_server.core.sandbox.confine import layers, namespaces, privileges, seccomp
    from app_server.core.sandbox.confine.syscalls import clone


@dataclass(slots=True)
class PreparedParent:
    """The launcher's side."""

    socket: socket.socket
    pid: int
    network: bool
    home: bytes
    """The server's home, which its commands find covered."""
    mounts: int
    """A descriptor that tells of changes of the host's mounts."""
    retired: bool = False
    commands: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Running commands by number, and the names that each holds."""
    count: int = 0

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
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_WR)

    def hand_over(self, request: wire.Value, descriptors: list[int], names: tuple[bytes, ...]) -> None:
        self.count += 1
        wire.send(self.socket, (self.count, request), descriptors)
        self.commands[self.count] = names

    def hear(self) -> tuple[bytes, ...] | None:
        """The names that a command held which has ended; None where the parent itself has."""
        try:
            message = wire.receive(self.socket)
        except OSError:
            message = None
        return None if message is None else self.commands.pop(message[0], ())

    def forget(self) -> tuple[bytes, ...]:
        """Everything that its commands held: it is gone, and they with it."""
        names = tuple(name for held in self.commands.values() for name in held)
        self.commands.clear()
        if not self.retired:
            self.retired = True
            os.close(self.mounts)
        return names


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
    running: dict[int, int] = {}
    spare = Spare(
        lambda: clone(namespaces.PER_COMMAND),
        lambda commands: _live(commands, launcher, home, confine["secrets"]),
    )
    spare.replace()
    poll = select.poll()
    poll.register(launcher, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    expecting = True
    while expecting or running:
        ready = {number for number, _ in poll.poll(spare.patience if expecting else None)}
        if expecting and launcher.fileno() not in ready:
            spare.replace()
        if wakeup in ready:
            supervisor.drain(wakeup)
            ended = [running.pop(pid) for pid, _ in supervisor.reap() if pid in running]
            for number in ended:
                with contextlib.suppress(OSError):
                    wire.send(launcher, (number,), [])
        if launcher.fileno() in ready:
            message = wire.receive(launcher)
            if message is None:
                expecting = False
                spare.dismiss()
                poll.unregister(launcher)
                continue
            (number, request), descriptors = message
            _start(spare, number, request, descriptors, running)


def _start(
    spare: Spare, number: int, request: wire.Value, descriptors: list[int], running: dict[int, int]
) -> None:
    try:
        running[spare.hand_over(request, descriptors)] = number
    except OSError as error:
        supervisor.report(descriptors[0], ("unavailable", error.errno or 0, str(error.strerror or error)))
    for descriptor in descriptors:
        os.close(descriptor)


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
