"""Addresses of `--listen`, and sockets that another program has made for this one.

Over TCP the server listens only on this machine's loopback address: connections have no encryption and no users. `ssh`
gives people elsewhere access.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

from app_server.engine.support.socket_paths import BadSocketPath, SocketPaths, place_at

STDIO = ("stdio", "stdio://")
OFF = "off"
UNIX = "unix://"
WEBSOCKET = "ws://"

LOOPBACK = re.compile(r"ws://(127\.0\.0\.1|\[::1\]):(\d{1,5})/?", re.ASCII)
BACKLOG = 128
"""Maximum number of connections to a port that wait to be accepted."""

SOCKETS = "Listeners"
"""Name of the sockets in the unit of launchd, by which the server requests them."""

MOST_DIGITS = 9
"""Maximum number of digits in a number of descriptors; no process has more."""
FIRST_PASSED = 3
"""The first descriptor that a service manager passes on."""


class CannotListen(Exception):
    """Raised if the server cannot listen at an address; the text is a sentence for the user."""


class BadOption(CannotListen):
    """The command line names an address or an option that can never work."""


class LoopbackAddress(Struct, frozen=True):
    host: str
    """Host as in a URL."""
    port: int
    """Port number; 0 if the system chooses it."""

    @property
    def url(self) -> str:
        return f"ws://{self.host}:{self.port}"


class Addresses(Struct, frozen=True):
    """Socket places and TCP ports at which the server listens."""

    stdio: bool = False
    places: tuple[SocketPaths, ...] = ()
    web: tuple[LoopbackAddress, ...] = ()
    """Addresses for WebSockets over TCP."""


def parse_addresses(given: Sequence[str], home: str) -> Addresses:
    """Parse the values of `--listen`. Raises BadOption."""
    places: dict[str, SocketPaths] = {}
    web: list[LoopbackAddress] = []
    for address in given:
        if address.startswith(UNIX):
            try:
                place = place_at(home, address.removeprefix(UNIX) or None)
            except BadSocketPath as error:
                raise BadOption(f"cannot listen on {address}: {error}") from None
            places[place.socket] = place
        elif address.startswith(WEBSOCKET):
            web.append(parse_loopback(address))
        elif address not in STDIO and address != OFF:
            raise BadOption(
                f"cannot listen on {address}: expected stdio://, unix://, unix:///PATH, ws://127.0.0.1:PORT or off"
            )
    return Addresses(any(each in STDIO for each in given), tuple(places.values()), tuple(web))


def parse_loopback(text: str) -> LoopbackAddress:
    """Parse an address that begins with `ws://`. Raises BadOption."""
    match = LOOPBACK.fullmatch(text)
    if match is None:
        raise BadOption(
            f"cannot listen on {text}: expected ws://127.0.0.1:PORT or ws://[::1]:PORT. To reach a server from another "
            "machine, forward the port: ssh -L PORT:127.0.0.1:PORT HOST"
        )
    port = int(match[2])
    if port > 65535:
        raise BadOption(f"cannot listen on {text}: expected a port of at most 65535")
    return LoopbackAddress(match[1], port)


def listen_on(address: LoopbackAddress) -> socket.socket:
    """Return a non-blocking listening socket. Raises CannotListen if there is none to be had."""
    family = socket.AF_INET6 if address.host.startswith("[") else socket.AF_INET
    listener = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        # Otherwise connections of the previous server could block the port for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host.strip("[]"), address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise CannotListen(f"cannot listen on {address.url}: {error.strerror}") from error
    return listener


def passed_sockets(environment: Mapping[str, str], pid: int) -> list[socket.socket]:
    """Return the unix sockets on which a service manager listens for this process. Raises BadOption for
    other sockets.
    """
    found = []
    for fd in _from_launchd() if sys.platform == "darwin" else _from_systemd(environment, pid):
        try:
            os.set_inheritable(fd, False)
            passed = socket.socket(fileno=fd)
            listens = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "no such number"
            raise BadOption(f"descriptor {fd} of the service manager cannot be used: {why}") from None
        if passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM or not listens:
            raise BadOption(
                "expected unix sockets of the service manager that listen; use --listen for others"
            )
        passed.setblocking(False)
        found.append(passed)
    return found


def _from_systemd(environment: Mapping[str, str], pid: int) -> Sequence[int]:
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(pid) or not (count.isascii() and count.isdigit()):
        return ()
    return range(FIRST_PASSED, FIRST_PASSED + int(count[:MOST_DIGITS]))


def _from_launchd() -> Sequence[int]:
    """Return the sockets of the unit that `units` prints; none if launchd did not start this process."""
    system = ctypes.CDLL(None)
    numbers, count = ctypes.POINTER(ctypes.c_int)(), ctypes.c_size_t()
    if system.launch_activate_socket(SOCKETS.encode(), ctypes.byref(numbers), ctypes.byref(count)) != 0:
        return ()
    found: Sequence[int] = numbers[: count.value]
    system.free(numbers)
    return found
