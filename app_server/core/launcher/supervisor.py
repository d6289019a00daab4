"""Watches over one command inside the launcher: starts it, reaps, ends its tree, reports once.

Runs in a process that has no other command at the time: outside namespaces as the reaper that orphans are
handed to, inside a pid namespace as its process 1. The channel is the command's lifeline:
when the server closes or shuts down its end, by intent or by dying, the tree is killed. What outlives a
normal end of an unconfined command is left to the launcher, which ends it when the server goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app_server.core.launcher import descendants, wire, working_directory

KILL_SECONDS = 2.0
"""So long the members of a killed tree are waited for; longer than that only the kernel holds them."""

RESET_SIGNALS = tuple(
    number
    for number in (
        *(signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)),
        *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    )
    if number
)
"""Python ignores or handles these; a command starts with the defaults."""


@dataclass(frozen=True, slots=True)
class Calls:
    """System calls of the command that another process answers."""

    listener: int
    """Readable when the first one has been made."""
    hand_over: Callable[[], None]
    """Gives the listener to whoever answers; it is closed here then."""


def supervise(
    request: dict[str, wire.Value],
    descriptors: list[int],
    wakeup: int,
    before: Callable[[], None] | None,
    *,
    whole: bool,
    calls: Calls | None = None,
) -> None:
    """Runs the command of `request` and reports on the channel, the first of `descriptors`, all of which it closes.

    `wakeup` is what `watch_children` gave. `before` confines the process that executes the command.
    `whole` says that this is process 1 of a pid namespace.
    """
    channel, stdio = descriptors[0], descriptors[1:]
    try:
        child = start(request, stdio, before, channel)
    except Abandoned:
        report(channel, ("exit", -signal.SIGKILL, True))
        os.close(channel)
        return
    except OSError as error:
        report(channel, ("failed", error.errno or 0, str(error.strerror or error)))
        os.close(channel)
        return
    finally:
        for number in set(stdio):
            os.close(number)
    report(channel, ("started", 0 if whole else child))
    status = _until_end(channel, wakeup, child, calls)
    killed = status is None
    if killed or not request["background"]:
        last = end_tree(child, whole)
        status = last if killed else status
    report(
        channel,
        ("exit", os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL, killed),
    )
    os.close(channel)


class Abandoned(Exception):
    """The server gave the command up before it was started."""


def abandoned(channel: int) -> bool:
    """Whether the server has let go of the command; it sends nothing on the channel. A command that was given up must
    not begin, however long its supervisor was kept from starting it.
    """
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def receive(commands: socket.socket) -> tuple[wire.Value, list[int]] | None:
    """The next command from the launcher; None where there will be none, or this one cannot be taken in."""
    try:
        return wire.receive(commands)
    except wire.Truncated as error:
        refuse(error)
        return None


def refuse(error: wire.Truncated) -> None:
    """Reports a command whose descriptors did not all fit into this process."""
    if error.descriptors:
        report(error.descriptors[0], ("unavailable", error.errno or 0, str(error.strerror)))
    for number in error.descriptors:
        os.close(number)


def report(channel: int, value: wire.Value) -> None:
    with contextlib.suppress(OSError):  # the server may be gone
        os.write(channel, wire.pack(value))


def watch_children() -> int:
    """A descriptor that becomes readable when a child changed state."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, _noticed)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _noticed(number: int, frame: object) -> None:
    """The wakeup descriptor tells; a handler has to exist for that."""


def _until_end(channel: int, wakeup: int, child: int, calls: Calls | None) -> int | None:
    """The wait status of the command, or None where the channel was closed first. What comes on it are signals for the
    command's process group.
    """
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    if calls is not None:
        poll.register(calls.listener, select.POLLIN)
    while True:
        ready = [number for number, _ in poll.poll()]
        if calls is not None and calls.listener in ready:
            poll.unregister(calls.listener)
            calls.hand_over()
            os.close(calls.listener)
            calls = None
        if wakeup in ready:
            clear_wakeup(wakeup)
            for pid, status in reap():
                if pid == child:
                    return status
        if channel in ready:
            signals = _signals(channel)
            if not signals:
                return None
            for number in signals:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child, number)


def _signals(channel: int) -> bytes:
    """Empty where the server has let go."""
    try:
        return os.read(channel, 16)
    except ConnectionResetError:
        return b""


def clear_wakeup(wakeup: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(wakeup, 512):
            pass


def reap() -> list[tuple[int, int]]:
    """Every child that has ended, with its wait status."""
    found: list[tuple[int, int]] = []
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    except ChildProcessError:
        pass
    return found


def has_children() -> bool:
    """Whether something is left of what was started here; what has ended is reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def end_tree(child: int, whole: bool) -> int | None:
    """Kills everything below this process and waits for it; the wait status of `child` if it had not been
    reaped.
    """
    deadline = time.monotonic() + KILL_SECONDS
    status: int | None = None
    while True:
        if whole:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            descendants.kill_below(os.getpid(), child)
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == child:
            status = ended
        if pid == 0:
            if time.monotonic() > deadline:
                return status
            time.sleep(0.0005)


def start(
    request: dict[str, wire.Value], stdio: list[int], before: Callable[[], None] | None, channel: int
) -> int:
    """Starts the command in a session of its own; OSError where it cannot be executed. Gives its pid."""
    working_directory.enter(request["cwd"], exact=request["exact_cwd"])
    environment: dict[bytes, bytes] = request["env"]
    program = find_program(request["argv"][0], environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin"))
    with _three(stdio) as three:
        if abandoned(channel):
            raise Abandoned
        if request["tty"] or before is not None:
            return _fork(program, request["argv"], environment, three, before, channel, request["tty"])
        return _spawn(program, request["argv"], environment, three)


@contextlib.contextmanager
def _three(stdio: list[int]) -> Iterator[tuple[int, int, int]]:
    """stdin, stdout and stderr: a terminal for all, a pipe for each, or no input and one for each output."""
    match stdio:
        case [terminal]:
            yield terminal, terminal, terminal
        case [stdin, stdout, stderr]:
            yield stdin, stdout, stderr
        case _:
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield nothing, stdio[0], stdio[1]
            finally:
                os.close(nothing)


def find_program(name: bytes, search: bytes) -> bytes:
    """Where execvp(3) would find `name`. Raises what it would fail with."""
    if b"/" in name:
        return name
    refused: OSError = FileNotFoundError(2, os.strerror(2))
    for folder in search.split(b":"):
        path = os.path.join(folder or b".", name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if os.path.isfile(path):
            refused = PermissionError(13, os.strerror(13))
    raise refused


def _spawn(
    program: bytes, argv: list[bytes], environment: dict[bytes, bytes], stdio: tuple[int, int, int]
) -> int:
    """The quick way: vfork and exec without copying this process."""
    actions = [(os.POSIX_SPAWN_DUP2, number, target) for target, number in enumerate(stdio)]
    return os.posix_spawn(
        program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESET_SIGNALS
    )


def _fork(
    program: bytes,
    argv: list[bytes],
    environment: dict[bytes, bytes],
    stdio: tuple[int, int, int],
    before: Callable[[], None] | None,
    channel: int,
    terminal: bool,
) -> int:
    """The way with code between fork and exec: a controlling terminal, confinement without namespaces."""
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if child:
        os.close(writer)
        with open(reader, "rb") as pipe:
            said = pipe.read()
        if said:
            os.waitpid(child, 0)
            raise OSError(int.from_bytes(said[:4], "big"), said[4:].decode("utf-8", "replace"))
        return child
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        for target, number in enumerate(stdio):
            os.dup2(number, target)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for signum in (*RESET_SIGNALS, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if before is not None:
            before()
        if abandoned(channel):
            os._exit(128 + signal.SIGKILL)  # as if it had been killed, which it is about to be
        os.execve(program, argv, environment)
    except OSError as error:
        os.write(writer, (error.errno or 0).to_bytes(4, "big") + str(error.strerror or error).encode())
    finally:
        os._exit(127 if sys.exc_info()[0] is None else 70)
