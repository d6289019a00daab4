"""The connection between a proxy and a shared server: connecting, or starting a server and connecting; the preface, and
its answer.

A server that ends at that moment closes without an answer, or no longer listens. Then the proxy begins again, so that
its client never notices. The preface is the first line that a proxy sends. It is private to this program, and its
writer and its reader agree on a number. `server/daemon/preface.py` reads it. Fast to import: it does not import `json`.
"""

from __future__ import annotations

import _socket
import os
import select
import sys
import time

from app_server import __version__
from app_server.engine.support.socket_paths import STARTS_WITHIN, SocketPaths

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ANSWERS_WITHIN = 2.0
"""Time for a server to answer the preface, in seconds. A server that listens has loaded everything."""

ATTEMPTS = 4
"""Minimum number of attempts if a server closes the connection before it answers."""

ATTEMPTS_WITHIN = 2.0
"""Time for further attempts, in seconds: on a busy machine several servers may start and end in this time."""

PAUSE = 0.01
"""Pause between two attempts, in seconds: if more clients connect than the system queues, and after the
first ATTEMPTS.
"""

PEER_CREDENTIALS = 17  # SO_PEERCRED of Linux, which `_socket` does not define everywhere
CREDENTIALS_BYTES = 12


NUMBER = 1
"""Version number of the form of prefaces and answers."""

MOST_BYTES = 4 << 20
"""Maximum size of a preface, most of which is the environment, in bytes."""

MOST_OF_ANSWER = 1 << 20

BEGINNING_OF_ANY = b'{"preface":'
BEGINNING = b"%b%d," % (BEGINNING_OF_ANY, NUMBER)
ACCEPTED = b'"ok":true}'

ESCAPED = {ord('"'): '\\"', ord("\\"): "\\\\"} | {
    code: f"\\u{code:04x}" for code in (*range(0x20), 0x7F, *range(0xDC80, 0xDD00))
}
"""Escapes of characters that JSON does not allow in strings, and of bytes that are not UTF-8, as Python represents them
in a string.
"""


class NotRunning(Exception):
    """No server listens at the place."""


class Left(Exception):
    """The server closed before it answered."""


class ProxyRefused(Exception):
    """The server does not serve this proxy; the text is a clause that says why."""


class NoAnswer(ProxyRefused):
    """The server does not answer in time: it hangs, or is stopped."""

    def __init__(self) -> None:
        super().__init__(f"the server there does not answer within {ANSWERS_WITHIN:g} s")


def meet(place: SocketPaths, preface: bytes, start: Callable[[], object]) -> _socket.socket:
    """Return a connection on which the preface was accepted.

    `start` is called if there is no server, and starts one or raises. Raises ProxyRefused and OSError.
    """
    attempts, deadline = 0, time.monotonic() + ATTEMPTS_WITHIN
    while attempts < ATTEMPTS or time.monotonic() < deadline:
        attempts += 1
        try:
            connection = connect(place)
        except NotRunning:
            start()
            continue
        try:
            accepted(ask(connection, preface, lambda: _is_starting(place)))
        except Left:
            connection.close()
            if attempts >= ATTEMPTS:
                time.sleep(PAUSE)
            continue
        except BaseException:
            connection.close()
            raise
        return connection
    raise ProxyRefused("the server there closes the connection")


def is_there(place: SocketPaths) -> bool:
    """Return whether a process listens at the place."""
    try:
        connect(place).close()
    except NotRunning:
        return False
    except (ProxyRefused, OSError):
        return True
    return True


def connect(place: SocketPaths) -> _socket.socket:
    """Connect without blocking. Raises NotRunning, ProxyRefused if the listener is another user's, and OSError."""
    address = place.address()
    if address is None:
        raise NotRunning
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        _connect(connection, address)
        if (why := _stranger(connection)) is not None:
            raise ProxyRefused(why)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(connection: _socket.socket, address: str) -> None:
    deadline = time.monotonic() + ANSWERS_WITHIN
    while True:
        try:
            return connection.connect(os.fsencode(address))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning from None
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise NoAnswer from None
        time.sleep(PAUSE)


def _stranger(connection: _socket.socket) -> str | None:
    """Return the reason why the listener must not get the environment: it is another user's, or confined, as a model's
    command is. None if it is this user's own.
    """
    if sys.platform != "linux":
        return None  # only the user can access the folder of the socket
    told = connection.getsockopt(_socket.SOL_SOCKET, PEER_CREDENTIALS, CREDENTIALS_BYTES)
    pid, user = (int.from_bytes(told[start : start + 4], sys.byteorder) for start in (0, 4))
    if user != os.geteuid():
        return f"what listens there belongs to user {user}"
    if not _is_in_own_namespace(pid):
        return f"what listens there (process {pid}) has ended or runs in a sandbox"
    return None


def _is_in_own_namespace(pid: int) -> bool:
    """Return whether a process has the user namespace of this one. The system shows the namespace of every process in a
    nested one. It does not show that of a process in the same namespace that guards its memory, as a server does.
    """
    try:
        own = os.readlink("/proc/self/ns/user")
    except OSError:
        return True  # the system has no namespaces, or no /proc
    try:
        return os.readlink(f"/proc/{pid}/ns/user") == own
    except PermissionError:
        return True
    except OSError:
        return False


def _is_starting(place: SocketPaths) -> bool:
    from app_server.server.proxy import refusals  # noqa: PLC0415  only for a server that is slow

    return refusals.is_starting(place)


def ask(connection: _socket.socket, line: bytes, has_reason: Callable[[], bool] = lambda: False) -> bytes:
    """Send a line and return the server's, both with a time limit, which is longer if the server `has_reason` to be
    slow. Raises Left and ProxyRefused.
    """
    begun, rest, answer = time.monotonic(), memoryview(line), b""
    deadline = begun + ANSWERS_WITHIN
    waiting = select.poll()
    try:
        while True:
            waiting.register(connection, select.POLLIN | (select.POLLOUT if rest else 0))
            left = deadline - time.monotonic()
            if left <= 0 and deadline - begun < STARTS_WITHIN and has_reason():
                deadline += ANSWERS_WITHIN
                continue
            if left <= 0 or len(answer) > MOST_OF_ANSWER:
                raise NoAnswer
            for _, events in waiting.poll(left * 1000):
                if events & select.POLLOUT:
                    rest = rest[_sent(connection, rest) :]
                if events & ~select.POLLOUT:
                    answer += _received(connection)
                if answer.endswith(b"\n"):
                    return answer[:-1]
    except ConnectionError:
        raise Left from None


def _sent(connection: _socket.socket, data: memoryview) -> int:
    try:
        return connection.send(data)
    except BlockingIOError:
        return 0


def _received(connection: _socket.socket) -> bytes:
    """Return more of the server's line, and leave the bytes after it unread."""
    try:
        some = connection.recv(MOST_OF_ANSWER, _socket.MSG_PEEK)
        if not some:
            raise Left
        return connection.recv(some.find(b"\n") + 1 or len(some))
    except BlockingIOError:
        return b""


def preface(
    pid: int, api: str | None, cwd: str, environment: Mapping[str, str], more: Mapping[str, object]
) -> bytes:
    """Return the preface as a line. `more` are the options of the command line."""
    said = {"preface": NUMBER, "version": __version__, "pid": pid, "api": api, "cwd": cwd, **more}
    return (as_json({**said, "env": environment}) + "\n").encode()


def as_json(value: object) -> str:
    """Return strings, numbers, truth values, null, lists and objects of them as JSON without spaces."""
    if isinstance(value, str):
        return f'"{value.translate(ESCAPED)}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_json, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{as_json(key)}:{as_json(each)}' for key, each in value.items())}}}"
    raise TypeError(f"not for JSON: {type(value)}")


def accepted(line: bytes) -> bool:
    """Return whether the server accepts this proxy. Raises ProxyRefused with the server's reason, or because it is not
    this program's.
    """
    if line.startswith(BEGINNING) and line.endswith(ACCEPTED):
        return True
    from app_server.server.proxy import refusals  # noqa: PLC0415  another server comes, and that takes longer

    raise ProxyRefused(refusals.reason_of(line, NUMBER))
