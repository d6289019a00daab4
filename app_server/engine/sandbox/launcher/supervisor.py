"""Supervises one command inside the launcher: starts it, reaps its processes, kills its tree, reports once.

Its process has no other command at the time. Outside namespaces it is the reaper of orphans, inside a pid namespace it
is process 1. When the server closes or shuts down its end of the channel, on purpose or by dying, the supervisor kills
the tree. Processes that outlive an unconfined command are left to the launcher, which kills them when the server ends.

A working directory that was judged, and perhaps approved by the user, is entered without following links: if a part of
its path is replaced by a link at any moment, the command fails instead of running elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
import time

from app_server.engine.sandbox.launcher import descendants, launcher_wire
from app_server.engine.sandbox.launcher.stdlib_min import Callable, signal, socket, suppress
from app_server.engine.support.light_dataclasses import dataclass

COMPONENT = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
if sys.platform == "linux":
    COMPONENT |= os.O_PATH  # passing through a directory takes no right to list it


def enter(path: bytes, *, exact: bool) -> None:
    """Make `path` the working directory. With `exact`, it must be absolute, and no part of it may be a link."""
    if not exact:
        os.chdir(path)
        return
    folder = os.open(b"/", COMPONENT)
    try:
        for name in path.split(b"/"):
            if name:
                inner = os.open(name, COMPONENT, dir_fd=folder)
                os.close(folder)
                folder = inner
        os.fchdir(folder)
    finally:
        os.close(folder)


KILL_SECONDS = 2.0
"""Timeout for killed processes to end, in seconds; after that only the kernel can be holding them."""

REAPED_PER_KILL = 4
"""Number of attempts to reap between two searches for descendants: a search reads the system's data of every
process.
"""

RESET_SIGNALS = tuple(
    number
    for number in (
        *(signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)),
        *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    )
    if number
)
"""Signals that Python ignores or handles; a command starts with their defaults."""


@dataclass(frozen=True, slots=True)
class Calls:
    """System calls of the command that the socket broker serves."""

    listener: int
    """Descriptor of the listener. It becomes readable at the first such call."""
    hand_over: Callable[[], None]
    """Function that sends the listener to the broker; the supervisor then closes its own copy."""


def supervise(
    request: dict[str, launcher_wire.Value],
    descriptors: list[int],
    wakeup: int,
    before: Callable[[], None] | None,
    *,
    whole: bool,
    calls: Calls | None = None,
) -> None:
    """Run the command of `request` and report on the channel, the first of `descriptors`; closes all of them. The
    others are a terminal, or stdin, stdout and stderr, or the last two.

    `wakeup` is the result of `watch_children`. `before` confines the process that executes the command. `whole` means
    that this process is process 1 of a pid namespace.
    """
    channel, stdio = descriptors[0], descriptors[1:]
    try:
        if len(stdio) == 2:  # the command has no input
            stdio.insert(0, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        child = start(request, stdio if len(stdio) == 3 else stdio * 3, before, channel)
    except Abandoned:
        report(channel, ("exit", -signal.SIGKILL, True))
        os.close(channel)
        return
    except OSError as error:
        report(channel, ("failed", error.errno or 0, str(error.strerror or error)))
        os.close(channel)
        return
    finally:
        for number in stdio:
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
    """The server abandoned the command before it was started."""


def abandoned(channel: int) -> bool:
    """Return whether the server has closed its end of the channel, on which it sends nothing before the start. An
    abandoned command must not start, however long its supervisor was delayed.
    """
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def receive(commands: socket.socket) -> tuple[launcher_wire.Value, list[int]] | None:
    """Return the next command from the launcher. None if there is none, or if its descriptors did not fit."""
    try:
        return launcher_wire.receive(commands)
    except launcher_wire.Truncated as error:
        refuse(error)
        return None


def refuse(error: launcher_wire.Truncated) -> None:
    """Report a command whose descriptors did not all fit into this process."""
    if error.descriptors:
        report(error.descriptors[0], ("unavailable", error.errno or 0, str(error.strerror)))
    for number in error.descriptors:
        os.close(number)


def report(channel: int, value: launcher_wire.Value) -> None:
    with suppress(OSError):  # the server may have ended
        os.write(channel, launcher_wire.pack(value))


def watch_children() -> int:
    """Return a descriptor that becomes readable when a child changes its state."""
    # Python writes to the wakeup descriptor only for signals that have a handler.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return new_wakeup()


def new_wakeup() -> int:
    """Make a wakeup descriptor in a child of a process that has called `watch_children`."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _until_end(channel: int, wakeup: int, child: int, calls: Calls | None) -> int | None:
    """Return the wait status of the command, or None if the channel was closed first. Bytes on the channel are signals
    for the command's process group.
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
            ended, _ = reap()
            if child in ended:
                return ended[child]
        if channel in ready:
            signals = _signals(channel)
            if not signals:
                return None
            for number in signals:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child, number)


def _signals(channel: int) -> bytes:
    """Read the signals that the server sends. Return nothing if it has closed its end."""
    try:
        return os.read(channel, 16)
    except ConnectionResetError:
        return b""


def clear_wakeup(wakeup: int) -> None:
    with suppress(BlockingIOError):
        while os.read(wakeup, 512):
            pass


def reap() -> tuple[dict[int, int], bool]:
    """Return the wait status of every child that has ended, by its pid, and whether children are left."""
    ended: dict[int, int] = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    except ChildProcessError:
        return ended, False
    return ended, True


def end_tree(child: int, whole: bool) -> int | None:
    """Kill all descendants and wait for them. Return the wait status of `child` if it was not reaped before."""
    deadline = time.monotonic() + KILL_SECONDS
    descendants.kill_group(child)
    # Orphans become children of this process: if it has none, no search is needed.
    ended, left = reap()
    status = ended.get(child)
    while left and time.monotonic() <= deadline:
        if whole:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            descendants.kill_below(os.getpid(), child)
        for _ in range(REAPED_PER_KILL):
            ended, left = reap()
            status = ended.get(child, status)
            if not left:
                break
            time.sleep(0.0005)
    return status


def start(
    request: dict[str, launcher_wire.Value], stdio: list[int], before: Callable[[], None] | None, channel: int
) -> int:
    """Start the command in its own session and return its pid. Raises OSError if it cannot be executed."""
    enter(request["cwd"], exact=request["exact_cwd"])
    environment: dict[bytes, bytes] = request["env"]
    program = find_program(request["argv"][0], environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin"))
    if abandoned(channel):
        raise Abandoned
    if request["tty"] or before is not None:
        return _fork(program, request["argv"], environment, stdio, before, channel, request["tty"])
    return _spawn(program, request["argv"], environment, stdio)


def find_program(name: bytes, search: bytes) -> bytes:
    """Return the path that execvp(3) would use for `name`. Raises the same OSError as execvp(3)."""
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


def _spawn(program: bytes, argv: list[bytes], environment: dict[bytes, bytes], stdio: list[int]) -> int:
    """Start the program on the fast path: vfork and exec, without copying this process."""
    actions = [(os.POSIX_SPAWN_DUP2, number, target) for target, number in enumerate(stdio)]
    return os.posix_spawn(
        program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESET_SIGNALS
    )


def _fork(
    program: bytes,
    argv: list[bytes],
    environment: dict[bytes, bytes],
    stdio: list[int],
    before: Callable[[], None] | None,
    channel: int,
    terminal: bool,
) -> int:
    """Fork and execute, for commands that need code between the two: a controlling terminal, or confinement without
    namespaces.
    """
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
            failure = pipe.read()
        if failure:
            os.waitpid(child, 0)
            raise OSError(int.from_bytes(failure[:4], "big"), failure[4:].decode("utf-8", "replace"))
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
            os._exit(128 + signal.SIGKILL)  # same status as a killed process
        os.execve(program, argv, environment)
    except OSError as error:
        os.write(writer, (error.errno or 0).to_bytes(4, "big") + str(error.strerror or error).encode())
    finally:
        os._exit(127 if sys.exc_info()[0] is None else 70)
