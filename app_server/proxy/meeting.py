"""How a proxy and a shared server meet: connect, or start one and connect; the preface, and its answer.

A server that leaves at that moment closes without an answer, or is not there any more. Then the proxy begins anew, so
that no client ever sees it. Fast to import.
"""

from __future__ import annotations

import _socket
import os
import select
import sys
import time

from app_server.places.socket_place import STARTS_WITHIN, SocketPlace
from app_server.proxy.preface import MOST_OF_ANSWER, ProxyRefused, accepted

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWERS_WITHIN = 2.0
"""Seconds for a server to answer the preface. Everything is loaded in one that listens."""

ATTEMPTS = 4
"""A server that closes is tried again three times."""

PAUSE = 0.01
"""Seconds between two tries where more connect than the system lets wait."""

PEER_CREDENTIALS = 17  # SO_PEERCRED of Linux, which `_socket` does not name everywhere
CREDENTIALS_BYTES = 12


class NobodyListens(Exception):
    """There is no server at the place."""


class Left(Exception):
    """The server closed before it answered."""


def meet(place: SocketPlace, preface: bytes, start: Callable[[], object]) -> _socket.socket:
    """Return a connection on which the preface was accepted.

    `start` is called where there is no server, and starts one or raises. Raises ProxyRefused and OSError.
    """
    for _ in range(ATTEMPTS):
        try:
            connection = connect(place)
        except NobodyListens:
            start()
            continue
        try:
            accepted(ask(connection, preface, lambda: is_starting(place)))
        except Left:
            connection.close()
            continue
        except BaseException:
            connection.close()
            raise
        return connection
    raise ProxyRefused("the server there closes the connection")


def is_there(place: SocketPlace) -> bool:
    """Tell whether something listens at the place."""
    try:
        connect(place).close()
    except NobodyListens:
        return False
    except (ProxyRefused, OSError):
        return True
    return True


def connect(place: SocketPlace) -> _socket.socket:
    """Connect without blocking. Raises NobodyListens, ProxyRefused where it is another user's, and OSError."""
    address = place.address()
    if address is None:
        raise NobodyListens
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        _connect(connection, address)
        if (other := _other_user(connection)) is not None:
            raise ProxyRefused(f"what listens there belongs to user {other}")
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
            raise NobodyListens from None
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ProxyRefused(f"the server there does not answer within {ANSWERS_WITHIN:g} s") from None
        time.sleep(PAUSE)


def _other_user(connection: _socket.socket) -> int | None:
    """Return who listens, where it is not this user: the environment is told to nobody else."""
    if sys.platform != "linux":
        return None  # the folder of the socket is the user's alone
    told = connection.getsockopt(_socket.SOL_SOCKET, PEER_CREDENTIALS, CREDENTIALS_BYTES)
    user = int.from_bytes(told[4:8], sys.byteorder)
    return None if user == os.geteuid() else user


def is_starting(place: SocketPlace) -> bool:
    """Tell whether a server is being started, which a service manager does with the first client that connects."""
    from app_server.places.locks import is_held  # noqa: PLC0415  only for a server that is slow

    return is_held(place.startup_lock)


def ask(connection: _socket.socket, line: bytes, has_reason: Callable[[], bool] = lambda: False) -> bytes:
    """Send a line and return the server's, both without waiting for ever; longer where the server `has_reason` to be
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
                raise ProxyRefused(f"the server there does not answer within {ANSWERS_WITHIN:g} s")
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
    """Return more of the server's line, and leave what stands behind it."""
    try:
        some = connection.recv(MOST_OF_ANSWER, _socket.MSG_PEEK)
        if not some:
            raise Left
        return connection.recv(some.find(b"\n") + 1 or len(some))
    except BlockingIOError:
        return b""
