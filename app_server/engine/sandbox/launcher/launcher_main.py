"""The launcher: a small process that starts every command. `own_programs` describes how it is run.

It reads requests from the server's socket and passes each to a waiting supervisor: one of its pool for unconfined
commands, a child of a prepared parent (`prepared`) for confined ones. It holds the placeholder directories of plans,
adopts processes that outlive their command, and kills everything when the server ends. It uses the standard library
only, since it runs without site-packages.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import sys
import time

from app_server.engine.sandbox.launcher import descendants, launcher_wire, supervisor, zygote
from app_server.engine.sandbox.launcher.placeholder_dirs import PlaceholderDirs
from app_server.engine.sandbox.launcher.stdlib_min import Callable, Sequence, signal, socket, suppress
from app_server.engine.support.light_dataclasses import dataclass, field

FREE = b"+"
"""Message of a supervisor that is ready for another command."""

MAX_WAITING = 4
"""Maximum number of idle supervisors that are kept; more concurrent commands than this are rare."""


@dataclass(slots=True)
class SupervisorPool:
    """Supervisors of commands without namespaces, forked ahead of time and reused. After the first command, no command
    waits for a fork. Most commands need no fork: a supervisor whose command left no process behind gets another
    command. No supervisor is forked ahead of the first command, since many servers run confined commands only.
    """

    fork: Callable[[], int]
    run_child: Callable[[socket.socket], None]
    """Main function of a supervisor. It receives commands on the socket and sends FREE on it."""
    waiting: list[tuple[int, socket.socket]] = field(default_factory=list)
    """Pid and socket of each idle supervisor. The last one is used next: it ran last, so its memory is still cached."""
    busy: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)
    """Pid and socket of each busy supervisor, by the socket's descriptor."""
    used: bool = False
    """Whether there was a command, so that there may be another."""

    @property
    def wanting(self) -> bool:
        """Whether a supervisor should be forked ahead, because none is idle."""
        return self.used and not self.waiting

    def hand_over(self, request: launcher_wire.Value, descriptors: list[int]) -> None:
        """Pass the command to an idle supervisor, or to a new one."""
        self.used = True
        while self.waiting:
            with suppress(OSError):  # that one has ended
                self._send(request, descriptors)
                return
        self._fork_idle(descriptors)
        self._send(request, descriptors)

    def _send(self, request: launcher_wire.Value, descriptors: list[int]) -> None:
        pid, chosen = self.waiting.pop()
        try:
            launcher_wire.send(chosen, request, descriptors)
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
        """Close all sockets: idle supervisors end now, busy ones after their command. New children also call it to
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


if sys.platform == "linux":
    from app_server.engine.sandbox.launcher import enforce

SHUTDOWN_SECONDS = 1.5
"""Timeout of the supervisors for killing their commands after the server has ended, in seconds."""


FORK_AHEAD_MS = 5
"""Delay before a child is forked ahead, in milliseconds. It is longer than the start of a command, which takes about
two milliseconds.
"""

KEEP_MS = 100
"""Time that placeholder directories stay after their last command, in milliseconds. A model rarely answers as fast, so
as a rule only the next one of several commands finds them.
"""


@dataclass(slots=True)
class Launcher:
    server: socket.socket
    wakeup: int
    parents: list[zygote.PreparedParent] = field(default_factory=list)
    pool: SupervisorPool = field(init=False)
    supervisors: set[int] = field(default_factory=set)
    """Pids of supervisors that still have a command while the launcher shuts down."""
    placeholders: PlaceholderDirs = field(default_factory=PlaceholderDirs)
    last_end: float = 0.0
    """Time when a confined command ended last."""

    def __post_init__(self) -> None:
        self.pool = SupervisorPool(os.fork, self._supervise)

    def serve(self) -> None:
        """Handle requests until the server closes its end."""
        while True:
            ready = self._wait(self._poll_timeout())
            if self.server.fileno() in ready:
                try:
                    message = launcher_wire.receive(self.server)
                except launcher_wire.Truncated as error:
                    supervisor.refuse(error)
                    continue
                if message is None:
                    return
                self._handle(*message)
            else:
                self.pool.replace()
                for parent in self.parents:
                    parent.replace()
                if self.placeholders.unused and time.monotonic() - self.last_end >= KEEP_MS / 1000:
                    self.placeholders.remove_unused()

    def _poll_timeout(self) -> int | None:
        """Return milliseconds until new children should be forked or placeholders removed; None if there is nothing to
        do.

        The command that was just handed over needs the processors for its own start. So the next child is forked at the
        next event, usually the end of that command, or after this time.
        """
        wanting = self.pool.wanting or any(parent.wanting for parent in self.parents)
        if wanting:
            return FORK_AHEAD_MS
        return KEEP_MS if self.placeholders.unused else None

    def shutdown(self) -> None:
        """Kill every command and its remaining descendants after the server has ended."""
        self.server.close()
        self.supervisors = self.pool.pids
        self.pool.close_children()
        for parent in self.parents:
            parent.drain()
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        while descendants.has_children() and time.monotonic() < deadline:
            self._wait(20)
            ours = self.supervisors | {parent.pid for parent in self.parents}
            table = descendants.parents() if descendants.has_children() else {}
            for pid in [pid for pid, parent in table.items() if parent == os.getpid() and pid not in ours]:
                descendants.kill_below(pid, pid)
                descendants.kill(pid)
        if descendants.has_children():
            for pid in descendants.below(os.getpid(), descendants.parents()):
                descendants.kill(pid)
        self.placeholders.release_all()

    def _wait(self, milliseconds: int | None) -> set[int]:
        """Poll once: reap children and handle messages of prepared parents. Return the readable descriptors."""
        poll = select.poll()
        numbers = [self.wakeup, *self.pool.busy, *(parent.channel.fileno() for parent in self.parents)]
        for number in numbers if self.server.fileno() < 0 else [*numbers, self.server.fileno()]:
            poll.register(number, select.POLLIN)
        ready = {number for number, _ in poll.poll(milliseconds)}
        if self.wakeup in ready:
            supervisor.clear_wakeup(self.wakeup)
            ended, _ = supervisor.reap()
            self.supervisors.difference_update(ended)
        self.pool.on_readable(ready)
        for parent in [one for one in self.parents if one.channel.fileno() in ready]:
            self._on_readable(parent)
        return ready

    def _on_readable(self, parent: zygote.PreparedParent) -> None:
        try:
            names = parent.on_readable()
        except OSError:  # it could not fork a child; the next command requests one again
            return
        if names is None:
            self.parents.remove(parent)
            parent.channel.close()
        self._keep_placeholders(names if names is not None else parent.forget())

    def _keep_placeholders(self, names: tuple[bytes, ...]) -> None:
        if names:
            self.placeholders.keep(names)
            self.last_end = time.monotonic()

    def _handle(self, request: launcher_wire.Value, descriptors: list[int]) -> None:
        confine = request["confine"]
        try:
            if supervisor.abandoned(descriptors[0]):
                supervisor.report(descriptors[0], ("exit", -signal.SIGKILL, True))
            elif confine is not None and confine["namespaces"]:
                self._run_prepared(request, descriptors)
            else:
                self._run_direct(request, descriptors)
        except OSError as error:
            supervisor.report(descriptors[0], ("unavailable", error.errno or 0, str(error.strerror or error)))
        finally:
            for number in descriptors:
                os.close(number)

    def _run_direct(self, request: launcher_wire.Value, descriptors: list[int]) -> None:
        self.placeholders.remove_unused()  # the command should see the workspace without them
        self.pool.hand_over(request, descriptors)

    def _supervise(self, commands: socket.socket) -> None:
        """Run one command after another as a supervisor without namespaces, until one leaves a process behind."""
        self._leave([])
        if sys.platform == "linux":
            enforce.become_reaper()
        wakeup = supervisor.watch_children()
        while (message := supervisor.receive(commands)) is not None:
            request, descriptors = message
            confine = request["confine"]
            before = None if confine is None else enforce.without_namespaces(confine)
            supervisor.supervise(request, descriptors, wakeup, before, whole=False)
            os.chdir("/")
            _, left = supervisor.reap()
            if left:
                return
            with suppress(OSError):  # the launcher has ended, so there will be no further command
                commands.send(FREE)

    def _run_prepared(self, request: launcher_wire.Value, descriptors: list[int]) -> None:
        confine = request["confine"]
        for parent in self.parents:
            if parent.stale() or parent.home != confine["home"]:
                parent.drain()
        current = [one for one in self.parents if one.network == confine["network"] and not one.draining]
        if not current:
            current = [zygote.prepare(confine, lambda: self._leave(descriptors))]
            self.parents += current
        names = self.placeholders.acquire(confine["reserved"])
        protected = list(dict.fromkeys([*confine["protected"], *names.held, *names.found]))
        request = {**request, "confine": {**confine, "protected": protected}}
        try:
            current[0].hand_over(request, descriptors, names.held, self._keep_placeholders)
        except OSError:
            self.placeholders.release(names.held)
            raise

    def _leave(self, descriptors: list[int]) -> None:
        """Close, in a new child, the launcher's sockets, and the descriptors of a command that another child
        receives.
        """
        self.server.close()
        self.pool.close_children()
        for number in descriptors:
            os.close(number)
        for parent in self.parents:
            parent.leave()


def main(arguments: Sequence[str]) -> None:
    server = socket.socket(fileno=int(arguments[0]))
    os.set_inheritable(server.fileno(), False)
    server.setblocking(True)
    if sys.platform == "linux":
        enforce.become_reaper()
        enforce.hide()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # a collection in a child would copy the memory of all imported modules
    launcher = Launcher(server, supervisor.watch_children())
    try:
        launcher.serve()
    finally:
        launcher.shutdown()
