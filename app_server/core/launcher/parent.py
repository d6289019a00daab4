"""A prepared parent: a process that holds reusable namespaces and forks confined commands inside them.

A user namespace, a network namespace and a private mount tree are the same for every command and take milliseconds to
create. So they are created once, and each command is a fork of this process with its own pid, mount and ipc namespace
and its own roots. It is a child of the launcher and lives until the launcher closes the channel and its commands have
ended. `prepared` is the launcher's side of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
from collections.abc import Callable

from app_server.core.launcher import supervisor, wire
from app_server.core.launcher.socket_broker import BrokerHandle

if sys.platform == "linux":
    from app_server.core.sandbox.confine import enforce, namespaces, privileges
    from app_server.core.sandbox.confine.syscalls import clone


def serve(launcher: socket.socket, confine: wire.Value) -> None:
    """Be the prepared parent: create the namespaces, then fork a child per request of the launcher.

    The order is given by the kernel. The broker's sockets are opened before `unshare`, while the process is in the
    server's network namespace. Only a process outside can write the uid and gid maps, so the launcher does that between
    the two messages; for that time the process is dumpable (`show`), because otherwise its /proc files belong to root.
    """
    network = confine["network"]
    try:
        privileges.show()
        broker = BrokerHandle.create(network=network)
        namespaces.unshare(network)
        broker.enter()
        wire.send(launcher, ("unshared",), [])
        wire.receive(launcher)
        privileges.hide()
        namespaces.prepare_mounts()
        rest = enforce.in_parent(network=network)
    except OSError as error:
        wire.send(launcher, ("refused", error.errno or 0, str(error.strerror or error)), [])
        return
    wire.send(launcher, ("ready",), [])
    wakeup = supervisor.watch_children()
    children: set[int] = set()
    poll = select.poll()
    poll.register(launcher, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    poll.register(broker.requests, select.POLLIN)
    expecting = True

    def fork_child() -> set[int]:
        return _another(launcher, broker, lambda theirs: _run_child(theirs, broker, confine, rest))

    while expecting or children:
        ready = {number for number, _ in poll.poll()}
        if broker.requests.fileno() in ready:
            # A failure for a lack of resources is retried: the pending request keeps the socket readable.
            with contextlib.suppress(OSError):
                broker.fork(launcher.close)
                poll.unregister(broker.requests)
        if wakeup in ready:
            supervisor.clear_wakeup(wakeup)
            ended, _ = supervisor.reap()
            if broker.pid in ended:
                poll.register(broker.requests, select.POLLIN)
            commands = children.intersection(ended)
            children -= commands
            # Nobody waits for a command now, and the launcher would request somebody at once.
            follows = bool(commands) and not children and expecting and launcher.fileno() not in ready
            for pid in commands:
                with contextlib.suppress(OSError):
                    wire.send(launcher, ("ended", (pid, follows)), [])
            if follows:
                children |= fork_child()
        if launcher.fileno() in ready:
            if wire.receive(launcher) is None:
                expecting = False
                poll.unregister(launcher)
            else:
                children |= fork_child()


def _another(
    launcher: socket.socket, broker: BrokerHandle, run_child: Callable[[socket.socket], None]
) -> set[int]:
    """Fork a child that waits for its command, and send the launcher the child's socket."""
    ours, theirs = socket.socketpair()
    pid = 0
    try:
        pid = clone(namespaces.PER_COMMAND)
        if pid == 0:
            try:
                ours.close()
                launcher.close()
                broker.requests.close()
                run_child(theirs)
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


def _run_child(
    commands: socket.socket, broker: BrokerHandle, common: wire.Value, rest: enforce.RestFilters
) -> None:
    """Be a command's process 1: set up what all commands share ahead of time, receive the request, apply
    its roots and filters, then run and supervise the command. `common` is the confinement that the parent was made for.
    """
    refused: OSError | None = None
    shown = None
    try:
        shown = namespaces.enter(common["home"], common["secrets"])
    except OSError as error:
        refused = error
    wakeup = supervisor.new_wakeup()
    message = supervisor.receive(commands)
    if message is None:
        return
    commands.close()
    request, descriptors = message
    try:
        if refused is not None:
            raise refused
        listener = enforce.with_namespaces(request["confine"], request["env"], shown, rest)
    except OSError as error:
        supervisor.report(descriptors[0], ("unavailable", error.errno or 0, str(error.strerror or error)))
        return
    mask = privileges.FILE_CAPABILITIES if request["confine"]["foreign_files"] else 0
    calls = None if listener is None else supervisor.Calls(listener, lambda: broker.hand_over(listener, mask))
    supervisor.supervise(request, descriptors, wakeup, None, whole=True, calls=calls)
