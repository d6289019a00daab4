"""Starts a shared server in the background: one at a time, with nothing inherited from the process that starts it.

The starter holds the lock of the place and gives a copy to the server, which releases it once it is ready or ends. So a
starter that is killed leaves either nothing or a server that is starting, and the next starter waits for that server.
Forks, so it is for processes without threads. Fast to import.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time

from app_server.engine.support.filelock import LockHeld, hold
from app_server.engine.support.home import home_folder
from app_server.engine.support.socket_paths import STARTS_WITHIN, BadSocketPath, SocketPaths, place_of_home

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PASSED = frozenset(("HOME", "USER", "LOGNAME", "PATH", "LANG", "TZ", "TMPDIR", "CODEX_HOME"))
PASSED_BEGINNINGS = ("LC_", "XDG_", "APP_SERVER_")
"""Prefixes of the variables that a server inherits from the starter's environment. All others come with each client."""

MOST_OF_LOG = 1 << 16

LOADED, READY = b"loaded\n", b"ready\n"
"""Messages of the server to its starter: it can take over the place of another server, and it accepts clients."""

SUCCEEDS = "succeeds"
"""Third value of `--startup`: another server has the place, and releases it once this one is loaded."""
LOADS_WITHIN = 60.0
"""Time for a server to load everything before it takes over a place, in seconds."""


class StartFailed(Exception):
    """No server could be started; the text is a clause that says why."""


def start_server(
    place: SocketPaths,
    words: Sequence[str],
    environment: Mapping[str, str],
    there: Callable[[], bool],
    give_up: Callable[[], object] | None = None,
) -> bool:
    """Start a server at the place, unless one is `there` already; return whether it was started.

    `words` are further options of its command line. `give_up` makes the present server release its place: it is called
    once the new one has loaded everything, so that a failed start changes nothing. Returns once the server accepts
    clients. Raises StartFailed, and any exception of `give_up`.
    """
    try:
        place.make_ready()
        lock = hold(place.startup_lock, STARTS_WITHIN)
    except LockHeld:
        raise StartFailed(f"another start is not ready within {STARTS_WITHIN:g} s") from None
    except BadSocketPath as error:
        raise StartFailed(str(error)) from None
    except OSError as error:
        raise StartFailed(f"{error.filename or place.folder}: {error.strerror}") from None
    try:
        if there():
            return False
        _start_holding(lock, place, words, environment, give_up)
    except OSError as error:
        raise StartFailed(error.strerror or str(error)) from None
    finally:
        os.close(lock)
    return True


def _start_holding(
    lock: int,
    place: SocketPaths,
    words: Sequence[str],
    environment: Mapping[str, str],
    give_up: Callable[[], object] | None,
) -> None:
    log = open_log(place.log)
    told, tells = os.pipe()
    try:
        begun = os.fstat(log).st_size
        startup = f"{LOCK_FD},{READY_FD}" + ("" if give_up is None else f",{SUCCEEDS}")
        command = (*server_command(place), "--startup", startup, *words)
        _spawn(command, passed_on(environment), log, lock, tells)
        os.close(tells)
        tells = -1
        if give_up is not None:
            _wait_for(LOADED, told, LOADS_WITHIN, place.log, begun)
            give_up()
        _wait_for(READY, told, STARTS_WITHIN, place.log, begun)
    finally:
        for fd in (log, told, tells):
            if fd >= 0:
                os.close(fd)


def server_command(place: SocketPaths) -> tuple[str, ...]:
    """Return the command of a server that listens at the place; it works in any directory."""
    return (sys.executable, "-P", "-m", "app_server", "--listen", place.listen)


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the server inherits from the starter."""
    return {
        name: value
        for name, value in environment.items()
        if name in PASSED or name.startswith(PASSED_BEGINNINGS)
    }


LOCK_FD, READY_FD = 3, 4
"""Descriptors that a server inherits besides the standard ones."""

MOST_DESCRIPTORS = 1 << 20


def _spawn(command: Sequence[str], environment: Mapping[str, str], log: int, lock: int, tells: int) -> None:
    """Run a command in a session of its own, detached from this process. Raises OSError if no process can be made."""
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        if status:
            raise OSError(os.waitstatus_to_exitcode(status), "no process could be started")
        return
    status = 1
    try:
        os.setsid()
        if os.fork():
            status = 0
        else:
            _become(command, environment, log, lock, tells)
    finally:
        os._exit(status)


def _become(command: Sequence[str], environment: Mapping[str, str], log: int, lock: int, tells: int) -> None:
    os.chdir("/")
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDWR)
    # The copies get numbers above all target numbers, so that none is overwritten before it is copied.
    high = [os.dup(fd) for fd in (nothing, nothing, log, lock, tells)]
    while any(fd <= READY_FD for fd in high):
        high = [os.dup(fd) for fd in high]
    for number, fd in enumerate(high):
        os.dup2(fd, number, inheritable=True)
    os.closerange(READY_FD + 1, min(os.sysconf("SC_OPEN_MAX"), MOST_DESCRIPTORS))
    os.execve(command[0], list(command), environment)


def open_log(path: str) -> int:
    """Open a log to append to it, and make it if it does not exist; never block. Raises OSError."""
    flags = (
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    )
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a FIFO without a reader
            raise OSError(errno.EINVAL, NO_FILE, path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, NO_FILE, path)
    return fd


NO_FILE = "it is no regular file"


def _wait_for(word: bytes, told: int, seconds: float, log: str, begun: int) -> None:
    """Wait until the server sends this message. Raises StartFailed."""
    answer = _answer(word, told, seconds)
    if answer != word:
        what = "it ended" if answer == b"" else f"it is not ready within {seconds:g} s"
        raise StartFailed(_last_line(log, begun) or what)


def _answer(word: bytes, told: int, seconds: float) -> bytes | None:
    """Return the message of the server, at most as long as `word`; empty if the server has ended, None if the time is
    over.
    """
    deadline, heard = time.monotonic() + seconds, b""
    waiting = select.poll()
    waiting.register(told, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if waiting.poll(left * 1000):
            some = os.read(told, len(word) - len(heard))
            heard += some
            if not some:
                return b""
            if len(heard) == len(word):
                return heard
    return None


def _last_line(path: str, begun: int) -> str:
    """Return the last line that the server has written to its log, whose size was `begun` bytes at the start."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        tail = os.pread(fd, MOST_OF_LOG, max(begun, size - MOST_OF_LOG)) if size > begun else b""
    finally:
        os.close(fd)
    lines = tail.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("app-server: ") if lines else ""


# --- the start, in the server
class Startup:
    """The lock that is held until the server accepts clients, and the pipe to the starter that waits for that."""

    def __init__(self, lock: int, pipe: int | None, *, succeeds: bool = False) -> None:
        self._lock, self._pipe, self.succeeds = lock, pipe, succeeds
        """Whether another server has the place until this one has loaded everything."""
        self.is_watched = pipe is None
        """Whether another program reads the server's stderr; if not, stderr is a file, its log."""

    def tell_loaded(self) -> None:
        """Notify the starter that the other server can release the place."""
        assert self._pipe is not None
        os.write(self._pipe, LOADED)

    def end(self) -> None:
        """Release the lock, because this server accepts clients, and notify the starter."""
        if self._pipe is not None:
            try:
                os.write(self._pipe, READY)
            except OSError:
                pass  # the starter has ended
            os.close(self._pipe)
        os.close(self._lock)


def startup_of(descriptors: str | None, environment: Mapping[str, str]) -> Startup | None:
    """Take over the two descriptors of a starter. A service manager takes no lock, although its clients are waiting
    already: then the lock is taken here, before anything is loaded. Raises ValueError if the descriptors are invalid.
    """
    if descriptors is not None:
        return _startup_with(descriptors)
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    place = place_of_home(home_folder(environment))
    try:
        place.make_ready()
        return Startup(hold(place.startup_lock), None)
    except (LockHeld, BadSocketPath, OSError):
        return None  # the place is checked again later, and that check reports the error


def _startup_with(descriptors: str) -> Startup:
    numbers = descriptors.split(",")
    succeeds = numbers[2:] == [SUCCEEDS]
    try:
        if len(numbers) != (3 if succeeds else 2):
            raise ValueError
        lock, pipe = map(int, numbers[:2])
        for fd in (lock, pipe):
            os.set_inheritable(fd, False)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"expected two open descriptors in --startup, got {descriptors[:100]!r}") from None
    return Startup(lock, pipe, succeeds=succeeds)
