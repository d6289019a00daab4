"""A prepared parent: a process that holds reusable namespaces and forks confined commands inside them.

A user namespace, a network namespace and a private mount tree are the same for every command and take milliseconds to
create. So they are created once, and each command is a fork of this process with its own pid, mount and ipc namespace
and its own roots. It is a child of the launcher and lives until the launcher closes the channel and its commands have
ended. `PreparedParent` is the launcher's side of it: it tracks the child that waits for the next command, the running
commands with their placeholder directories, and whether the parent must be replaced. Messages on the channel:

    parent → launcher: unshared, ready | refused    while it starts
    launcher → parent: mapped, another              the maps are written; fork a child
    parent → launcher: waits pid + socket           the child that will run the next command
    parent → launcher: refused error                no child could be forked
    parent → launcher: ended pid, follows           a command's process 1 has ended; another child is forked or refused
"""

from __future__ import annotations

import errno
import os
import select
import sys

from app_server.engine.sandbox.launcher import launcher_wire, supervisor
from app_server.engine.sandbox.launcher.socket_broker import BrokerHandle
from app_server.engine.sandbox.launcher.stdlib_min import Callable, closing, socket, suppress
from app_server.engine.support.light_dataclasses import dataclass, field

if sys.platform == "linux":
    from app_server.engine.sandbox.launcher import enforce, namespaces
    from app_server.engine.sandbox.launcher.syscalls import clone


def serve(launcher: socket.socket, confine: launcher_wire.Value) -> None:
    """Create the namespaces as the prepared parent, then fork a child per request of the launcher.

    The kernel determines the order. The broker's sockets are opened before `unshare`, while the process is in the
    server's network namespace. Only a process outside can write the uid and gid maps, so the launcher does that between
    the two messages; for that time the process is dumpable (`show`), because otherwise its /proc files belong to root.
    """
    network = confine["network"]
    try:
        enforce.show()
        broker = BrokerHandle.create(network=network)
        namespaces.unshare(network)
        broker.enter()
        launcher_wire.send(launcher, ("unshared",), [])
        launcher_wire.receive(launcher)
        enforce.hide()
        namespaces.prepare_mounts()
        rest = enforce.in_parent(network=network)
    except OSError as error:
        launcher_wire.send(launcher, ("refused", error.errno or 0, str(error.strerror or error)), [])
        return
    launcher_wire.send(launcher, ("ready",), [])
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
            with suppress(OSError):
                broker.fork(launcher.close)
                poll.unregister(broker.requests)
        if wakeup in ready:
            supervisor.clear_wakeup(wakeup)
            ended, _ = supervisor.reap()
            if broker.pid in ended:
                poll.register(broker.requests, select.POLLIN)
            commands = children.intersection(ended)
            children -= commands
            # No child waits for a command now, and the launcher would request one at once.
            follows = bool(commands) and not children and expecting and launcher.fileno() not in ready
            for pid in commands:
                with suppress(OSError):
                    launcher_wire.send(launcher, ("ended", (pid, follows)), [])
            if follows:
                children |= fork_child()
        if launcher.fileno() in ready:
            if launcher_wire.receive(launcher) is None:
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
        launcher_wire.send(launcher, ("waits", pid), [ours.fileno()])
    except OSError as error:
        with suppress(OSError):
            launcher_wire.send(launcher, ("refused", (error.errno or 0, str(error.strerror or error))), [])
    finally:
        ours.close()
        theirs.close()
    return {pid} if pid else set()


def _run_child(
    commands: socket.socket, broker: BrokerHandle, common: launcher_wire.Value, rest: enforce.RestFilters
) -> None:
    """Run as process 1 of the next command: set up the shared part, receive the request, apply its roots and filters,
    then run and supervise the command. `common` is the confinement for which the parent was made.
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
    mask = enforce.FILE_CAPABILITIES if request["confine"]["foreign_files"] else 0
    calls = None if listener is None else supervisor.Calls(listener, lambda: broker.hand_over(listener, mask))
    supervisor.supervise(request, descriptors, wakeup, None, whole=True, calls=calls)


@dataclass(slots=True)
class PreparedParent:
    """The launcher's side of a prepared parent."""

    channel: socket.socket
    pid: int
    network: bool
    home: bytes
    """The server's home, whose secrets its commands do not see."""
    mounts: int
    """Descriptor of /proc/self/mounts, which the kernel signals when the host's mounts change."""
    draining: bool = False
    commands: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Running commands by the pid of their process 1, with the placeholder directories that each holds."""
    waiting: tuple[int, socket.socket] | None = None
    """The child that waits for a command: its pid, and the socket for the command. None if no child waits."""
    child_requested: bool = False
    """Whether a request for another child was sent and not answered."""

    def stale(self) -> bool:
        """Return whether the host's mounts have changed: its commands would see the old ones."""
        poll = select.poll()
        poll.register(self.mounts, select.POLLPRI)
        return bool(poll.poll(0))

    def drain(self) -> None:
        """Stop giving it commands. It ends after its last one."""
        if not self.draining:
            self.draining = True
            os.close(self.mounts)
            self._close_child()
            with suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    @property
    def wanting(self) -> bool:
        """Whether no child waits or is requested."""
        return self.waiting is None and not self.child_requested and not self.draining

    def replace(self) -> None:
        """Request the next child if none waits."""
        if self.wanting:
            with suppress(OSError):  # it has ended; `on_readable` will report that
                launcher_wire.send(self.channel, ("another",), [])
                self.child_requested = True

    def hand_over(
        self,
        request: launcher_wire.Value,
        descriptors: list[int],
        names: tuple[bytes, ...],
        release: Callable[[tuple[bytes, ...]], None],
    ) -> None:
        """Pass the command to the waiting child, or to a new one. Raises OSError if there is none.

        `release` is called with the names of each command that ends before that. The second attempt is for a child that
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
                launcher_wire.send(chosen, request, descriptors)
            except OSError:
                if last:
                    raise
            else:
                self.commands[pid] = names
                break
            finally:
                chosen.close()

    def on_readable(self) -> tuple[bytes, ...] | None:
        """Handle one message. Return the names of a command that has ended, () after any other message, and None if the
        parent itself has ended. Raises OSError if the parent could not fork a child.
        """
        try:
            message = launcher_wire.receive(self.channel)
        except launcher_wire.Truncated:  # the socket of a waiting child was lost, so that child ends
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
        """Return the names of all its commands. Callers call it after the parent has ended, and its commands with
        it.
        """
        names = tuple(name for held in self.commands.values() for name in held)
        self.commands.clear()
        self.drain()
        return names

    def _close_child(self) -> None:
        if self.waiting is not None:
            self.waiting[1].close()
            self.waiting = None

    def leave(self) -> None:
        """In a new child of the launcher, close the launcher's descriptors."""
        self.channel.close()
        self._close_child()


def prepare(confine: launcher_wire.Value, leave: Callable[[], None]) -> PreparedParent:
    """Fork a parent for commands with this confinement, and wait until its namespaces exist. Raises OSError if the
    kernel refuses them.
    """
    ours, theirs = socket.socketpair()
    mounts = -1
    try:
        with closing(theirs):
            mounts = os.open("/proc/self/mounts", os.O_RDONLY | os.O_CLOEXEC)
            pid = os.fork()
            if pid == 0:
                try:
                    leave()
                    ours.close()
                    os.close(mounts)
                    serve(theirs, confine)
                finally:
                    os._exit(0)
        _await_namespaces(ours, pid)
    except OSError:
        ours.close()
        if mounts >= 0:
            os.close(mounts)
        raise
    return PreparedParent(ours, pid, confine["network"], confine["home"], mounts)


def _await_namespaces(channel: socket.socket, pid: int) -> None:
    """Write the uid and gid maps of a new parent after its `unshare`, and wait until it is ready."""
    message = launcher_wire.receive(channel)
    if message is not None and message[0][0] == "unshared":
        try:
            namespaces.write_maps(pid)
            launcher_wire.send(channel, ("mapped",), [])
            message = launcher_wire.receive(channel)
        except OSError as error:
            raise OSError(_unless_ended(error.errno, pid), str(error)) from error
    if message is None:
        raise OSError(errno.ECHILD, "the prepared process ended")
    if message[0][0] != "ready":
        code, text = message[0][1:]
        raise OSError(code, text)


def _unless_ended(code: int | None, pid: int) -> int:
    """Return ECHILD if the process has ended, since then its maps cannot be written; otherwise return the error
    itself.
    """
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return errno.ECHILD if ended else code or 0
