"""Opens the doors of a server: a socket for each address, and what clients have to bring there.

Locks and the token come first, before anything is loaded: whoever comes second to a place is told so at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from app_server import __version__
from app_server.core.lazy import Lazy
from app_server.places.socket_place import PlaceRefused, SocketPlace, place_at, place_of_home
from app_server.shared.addresses import Addresses, BadAddress
from app_server.shared.arrivals import Doorway, OpensWebSockets
from app_server.shared.binding import HeldPlace, KeptPlace, PlaceTaken, hold_place
from app_server.shared.lifetime import ListeningPlace
from app_server.shared.loopback import AddressRefused, LoopbackAddress, listen_on
from app_server.shared.ws_token import TokenRefused, token_digest
from protocol.structs import replace


class CannotListen(Exception):
    """There is no listening at an address; the text is a sentence for the user."""


class TokenOptions(Struct, frozen=True):
    """The token of WebSocket clients, as the command line says; without either, it is in a file beside the socket."""

    file: str | None = None
    sha256: str | None = None


class Doors:
    """The addresses of one process, on the way to sockets."""

    def __init__(self, addresses: Addresses, home: str, token: TokenOptions) -> None:
        """Raises BadAddress where the token cannot be used."""
        self._addresses, self._home = addresses, home
        self._digest = _token_digest(home, token) if addresses.web else None
        self._held: list[tuple[HeldPlace, socket.socket | None]] = []
        self._web: list[socket.socket] = []
        """Those that listen already."""

    def hold(self, passed: Sequence[socket.socket]) -> None:
        """Take the locks of all places. `passed` are sockets of a service manager: they replace those at places. Raises
        CannotListen.
        """
        places: list[tuple[SocketPlace, socket.socket | None]]
        places = [(each, None) for each in self._addresses.places]
        with _told_to_users():
            if passed:
                places = [(place_at(self._home, each.getsockname()), each) for each in passed]
            for place, listening in places:
                self._hold(hold_place(place), listening)

    def inherit(self, places: Sequence[KeptPlace], descriptors: Iterator[int]) -> None:
        """Go on with the places and the ports of another process. Each place has a lock and a socket."""
        for kept in places:
            held = HeldPlace.inherited(kept, place_at(self._home, kept.socket), next(descriptors))
            self._hold(held, socket.socket(fileno=next(descriptors)))
        self._web = [socket.socket(fileno=next(descriptors)) for _ in self._addresses.web]

    def _hold(self, held: HeldPlace, listening: socket.socket | None) -> None:
        held.sign(f"pid {os.getpid()}, {__version__}")
        self._held.append((held, listening))

    def open(
        self,
        environment: Mapping[str, str],
        line_limit: int,
        *,
        why_full: Callable[[], str | None],
        is_loaded: Callable[[], bool],
    ) -> tuple[list[ListeningPlace], list[Doorway]]:
        """Listen everywhere; return the doors at places, and the others. Raises CannotListen."""

        def http(port: int | None, digest: bytes | None) -> Lazy[OpensWebSockets]:
            def load() -> OpensWebSockets:
                from app_server.shared.http_door import HttpDoor  # noqa: PLC0415 - proxies do without it

                return HttpDoor(
                    port=port,
                    token_sha256=digest,
                    line_limit=line_limit,
                    unavailable=why_full,
                    is_ready=is_loaded,
                )

            return Lazy(load)

        places, others = [], []
        with _told_to_users():
            for held, passed in self._held:
                listening = passed or held.bind(environment)
                with suppress(OSError):
                    held.link_reference()
                door = Doorway(listening, f"unix://{held.place.socket}", http(None, None))
                places.append(ListeningPlace(held, door))
            for listening, found in self._listening_on_ports():
                door = Doorway(listening, found.url, http(found.port, self._digest), of_this_user=False)
                others.append(door)
        return places, others

    def _listening_on_ports(self) -> Iterator[tuple[socket.socket, LoopbackAddress]]:
        if not self._web:
            yield from map(listen_on, self._addresses.web)
        for listening, wanted in zip(self._web, self._addresses.web, strict=False):
            listening.setblocking(False)
            yield listening, replace(wanted, port=listening.getsockname()[1])


def _token_digest(home: str, token: TokenOptions) -> bytes:
    place = place_of_home(home)
    file = None if token.file is None else Path(token.file)
    try:
        place.make_ready()
        return token_digest(Path(place.folder), file, token.sha256, os.urandom)
    except (PlaceRefused, TokenRefused) as error:
        raise BadAddress(str(error)) from None


@contextmanager
def _told_to_users() -> Iterator[None]:
    try:
        yield
    except (PlaceTaken, PlaceRefused, AddressRefused) as error:
        raise CannotListen(str(error)) from None
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        raise CannotListen(f"cannot listen: {where}{error.strerror}") from None
