"""Addresses of `--listen`, and sockets that another program has made for this one."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct

from app_server.places.socket_place import PlaceRefused, SocketPlace, place_at
from app_server.shared.loopback import AddressRefused, LoopbackAddress, parse_loopback

STDIO = ("stdio", "stdio://")
OFF = "off"
UNIX = "unix://"
WEBSOCKET = "ws://"

SOCKETS = "Listeners"
"""The name of the sockets in the unit of launchd, by which the server asks for them."""

FIRST_PASSED = 3
"""The first descriptor that a service manager passes on."""


class BadAddress(Exception):
    """Nothing can be listened on there; the text is a sentence for the user."""


class Addresses(Struct, frozen=True):
    """Places and ports at which clients are waited for."""

    stdio: bool = False
    places: tuple[SocketPlace, ...] = ()
    web: tuple[LoopbackAddress, ...] = ()
    """WebSocket over TCP."""


def parse_addresses(given: Sequence[str], home: str) -> Addresses:
    """Read what `--listen` was given. Raises BadAddress."""
    places: dict[str, SocketPlace] = {}
    web: list[LoopbackAddress] = []
    for address in given:
        if address.startswith(UNIX):
            try:
                place = place_at(home, address.removeprefix(UNIX) or None)
            except PlaceRefused as error:
                raise BadAddress(f"cannot listen on {address}: {error}") from None
            places[place.socket] = place
        elif address.startswith(WEBSOCKET):
            try:
                web.append(parse_loopback(address))
            except AddressRefused as error:
                raise BadAddress(str(error)) from None
        elif address not in STDIO and address != OFF:
            raise BadAddress(
                f"cannot listen on {address}: expected stdio://, unix://, unix:///PATH, ws://127.0.0.1:PORT or off"
            )
    return Addresses(any(each in STDIO for each in given), tuple(places.values()), tuple(web))


def passed_sockets(environment: Mapping[str, str], pid: int) -> list[socket.socket]:
    """Return the unix sockets that a service manager listens on for this process. Raises BadAddress for others."""
    found = []
    for fd in _from_launchd() if sys.platform == "darwin" else _from_systemd(environment, pid):
        os.set_inheritable(fd, False)
        passed = socket.socket(fileno=fd)
        if passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM:
            raise BadAddress("expected unix sockets of the service manager; use --listen for others")
        passed.setblocking(False)
        found.append(passed)
    return found


def _from_systemd(environment: Mapping[str, str], pid: int) -> Sequence[int]:
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(pid) or not count.isdigit():
        return ()
    return range(FIRST_PASSED, FIRST_PASSED + int(count))


def _from_launchd() -> Sequence[int]:
    """Ask for the sockets of the unit that `units` prints; there are none where launchd did not start this process."""
    system = ctypes.CDLL(None)
    numbers, count = ctypes.POINTER(ctypes.c_int)(), ctypes.c_size_t()
    if system.launch_activate_socket(SOCKETS.encode(), ctypes.byref(numbers), ctypes.byref(count)) != 0:
        return ()
    found: Sequence[int] = numbers[: count.value]
    system.free(numbers)
    return found
