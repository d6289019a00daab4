"""Addresses on this machine's loopback, over TCP, for clients that speak WebSocket.

There is no encryption and there are no users, so no other address is listened on: `ssh` brings people from elsewhere.
"""

from __future__ import annotations

import re
import socket

from msgspec import Struct

ADDRESS = re.compile(r"ws://(127\.0\.0\.1|\[::1\]):(\d{1,5})/?", re.ASCII)
BACKLOG = 128
"""Connections that wait to be accepted."""


class AddressRefused(Exception):
    """Nobody listens there. The text is a sentence for the user."""


class LoopbackAddress(Struct, frozen=True):
    host: str
    """As in a URL."""
    port: int
    """0: the system chooses."""

    @property
    def url(self) -> str:
        return f"ws://{self.host}:{self.port}"


def parse_loopback(text: str) -> LoopbackAddress:
    """Read an address of `--listen` that begins with `ws://`. Raises AddressRefused."""
    match = ADDRESS.fullmatch(text)
    if match is None:
        raise AddressRefused(
            f"cannot listen on {text}: expected ws://127.0.0.1:PORT or ws://[::1]:PORT. To reach a server from another "
            "machine, forward the port: ssh -L PORT:127.0.0.1:PORT HOST"
        )
    port = int(match[2])
    if port > 65535:
        raise AddressRefused(f"cannot listen on {text}: expected a port of at most 65535")
    return LoopbackAddress(match[1], port)


def listen_on(address: LoopbackAddress) -> tuple[socket.socket, LoopbackAddress]:
    """Return a listening socket, which does not block, and its address with the port that it has. Raises AddressRefused
    where it cannot be had.
    """
    family = socket.AF_INET6 if address.host.startswith("[") else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise AddressRefused(f"cannot listen on {address.url}: {error.strerror}") from error
    try:
        listener.setblocking(False)
        # Otherwise connections of the server before could block the port for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host.strip("[]"), address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressRefused(f"cannot listen on {address.url}: {error.strerror}") from error
    return listener, LoopbackAddress(address.host, listener.getsockname()[1])
