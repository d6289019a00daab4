"""The listening sockets of a server (doors), one for each address, and the credentials that clients need there.

Locks and the token come first, before anything is loaded, so that a second server at a place gets its error at once.
Only the SHA-256 of a token is kept in memory. A token file that others can read is refused, not repaired: whoever has
read it would still know the token.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.config.safe_file import UnreadableFileError, create_file_atomically, read_regular_file
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.real_path import within
from app_server.engine.support.socket_paths import BadSocketPath, SocketPaths, place_at, place_of_home
from app_server.server.daemon import websocket_listener
from app_server.server.daemon.addresses import Addresses, BadOption, CannotListen, listen_on
from app_server.server.daemon.binding import BoundSocket, hold_place
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.server.daemon.websocket_listener import WebSocketListener

log = logging.getLogger(__name__)

SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
SHORTAGE_SECONDS = 1
"""Pause before a connection is accepted again after the system had no resources for one, in seconds."""

TOKEN_FILE = "ws-token"
"""Name of the file in the folder of the server's socket."""
TOKEN_BYTES = 32
MOST_BYTES = 4096
"""Maximum size of a file with a token, in bytes."""
LEAST_CHARACTERS = 16
"""Minimum length of a token, in characters: a shorter one can be guessed."""


class Listener:
    """A listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        address: str,
        http: Lazy[WebSocketListener],
        held: BoundSocket | None = None,
    ) -> None:
        """Begin with a listening socket. `address` is in the form that users write; `http` is loaded with the first
        client that uses HTTP. `held` is the place of a unix socket, for which the system identifies its clients; at any
        other door clients need a token.
        """
        self.socket, self.address, self.http, self.held = listening, address, http, held
        self._scope = anyio.CancelScope()

    def open(self, tasks: TaskGroup, receive: Callable[[socket.socket, Listener], None]) -> None:
        """Begin to accept connections, and call `receive` with each of them."""
        self._scope = anyio.CancelScope()
        tasks.start_soon(self._accept, self._scope, receive, name=f"accept {self.address}")

    def close(self) -> None:
        self._scope.cancel()
        self.socket.close()

    def accept_one(self) -> socket.socket | None:
        """Return a connection that waits; None if there is none. Raises OSError if the system has no
        resources for one.
        """
        try:
            return self.socket.accept()[0]
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return None

    async def _accept(
        self, scope: anyio.CancelScope, receive: Callable[[socket.socket, Listener], None]
    ) -> None:
        is_short = False
        with scope:
            while True:
                try:
                    connection = self.accept_one()
                except OSError as error:
                    if not is_short:
                        log.warning("no connection can be accepted on %s: %s", self.address, error.strerror)
                    is_short = True
                    await anyio.sleep(SHORTAGE_SECONDS)
                    continue
                is_short = False
                if connection is not None:
                    receive(connection, self)
                    await anyio.lowlevel.checkpoint()
                else:
                    await anyio.wait_readable(self.socket)


class Listeners:
    """The addresses of one process, from the locks to the open doors."""

    def __init__(
        self, addresses: Addresses, home: str, token: TokenOptions, writable: Mapping[str, str]
    ) -> None:
        """Prepare the token. `writable` are folders in which commands may write, each with a clause that says so.
        Raises BadOption if the token cannot be used.
        """
        self._addresses, self._home, self._writable = addresses, home, writable
        self._digest = _token_digest(home, token) if addresses.web else None
        self._held: list[BoundSocket] = []

    def hold(self, passed: Sequence[socket.socket], seconds: float = 0) -> None:
        """Take the locks of all places, and wait up to `seconds` for another server to release them. `passed` are
        sockets of a service manager: they replace those at places. Raises CannotListen.
        """
        with _told_to_users():
            for listening in passed:
                self._hold(place_at(self._home, listening.getsockname()), listening)
            for place in () if passed else self._addresses.places:
                self._hold(place, None, seconds)

    def _hold(self, place: SocketPaths, listening: socket.socket | None, seconds: float = 0) -> None:
        self._refuse_writable(place)
        self._held.append(hold_place(place, listening, seconds=seconds, home=self._home))

    def _refuse_writable(self, place: SocketPaths) -> None:
        """Raise CannotListen if commands could replace the server's socket by one of their own."""
        folder = os.path.realpath(place.folder)
        if place.reference is not None or within(folder, os.path.realpath(self._home)):
            return  # no command may write in the home
        for root, why in self._writable.items():
            if within(folder, os.path.realpath(root)):
                text = f"cannot listen on {place.socket}: {why}, and could take its place; choose a folder elsewhere"
                raise CannotListen(text)

    def open(
        self,
        environment: Mapping[str, str],
        line_limit: int,
        *,
        why_full: Callable[[], str | None],
        is_loaded: Callable[[], bool],
    ) -> list[Listener]:
        """Listen at all addresses. Raises CannotListen."""

        def http(port: int | None, digest: bytes | None) -> Lazy[WebSocketListener]:
            def load() -> WebSocketListener:
                return websocket_listener.WebSocketListener(
                    port=port,
                    token_sha256=digest,
                    line_limit=line_limit,
                    unavailable=why_full,
                    is_ready=is_loaded,
                )

            return Lazy(load)

        doors = []
        with _told_to_users():
            for held in self._held:
                address = f"unix://{held.place.socket}"
                doors.append(Listener(held.listen(environment), address, http(None, None), held))
            for wanted in self._addresses.web:
                listening = listen_on(wanted)
                found = replace(wanted, port=listening.getsockname()[1])
                doors.append(Listener(listening, found.url, http(found.port, self._digest)))
        return doors


@contextmanager
def _told_to_users() -> Iterator[None]:
    try:
        yield
    except BadSocketPath as error:
        raise CannotListen(str(error)) from None
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        raise CannotListen(f"cannot listen: {where}{error.strerror}") from None


class TokenOptions(Struct, frozen=True):
    """The token of WebSocket clients, according to the command line; without an option, it is in a file beside the
    socket.
    """

    file: str | None = None
    sha256: str | None = None


def _token_digest(home: str, token: TokenOptions) -> bytes:
    place = place_of_home(home)
    try:
        place.make_ready()
    except BadSocketPath as error:
        raise BadOption(str(error)) from None
    file = None if token.file is None else Path(token.file)
    return token_digest(Path(place.folder), file, token.sha256, os.urandom)


def token_digest(
    folder: Path, file: Path | None, sha256: str | None, random: Callable[[int], bytes]
) -> bytes:
    """Return the SHA-256 of the token: as given, of the named file, or of the file in `folder`, which is made with
    `random` bytes if it does not exist. Raises BadOption.
    """
    if file is not None and sha256 is not None:
        raise BadOption("expected a file with the token or its SHA-256, got both")
    if sha256 is not None:
        if re.fullmatch("[0-9A-Fa-f]{64}", sha256) is None:
            raise BadOption("expected a SHA-256 of 64 hexadecimal digits")
        return bytes.fromhex(sha256)
    path = file or folder / TOKEN_FILE
    token = _read(path)
    if token is None and file is None:
        _make(path, random)
        token = _read(path)
    return _digest(path, token)


def _make(path: Path, random: Callable[[int], bytes]) -> None:
    try:
        with suppress(FileExistsError):  # another server has made it meanwhile
            create_file_atomically(path, base64.urlsafe_b64encode(random(TOKEN_BYTES)) + b"\n", 0o600)
    except OSError as error:
        raise BadOption(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> bytes | None:
    try:
        return read_regular_file(path, MOST_BYTES, private=True)
    except UnreadableFileError as error:
        raise BadOption(f"{path} cannot be used as a token: {error}") from error


def _digest(path: Path, content: bytes | None) -> bytes:
    if content is None:
        raise BadOption(f"{path} does not exist")
    words = content.split()
    if len(words) != 1 or not words[0].isascii():
        raise BadOption(f"expected one word of ASCII characters in {path}")
    if len(words[0]) < LEAST_CHARACTERS:
        raise BadOption(f"expected a token of at least {LEAST_CHARACTERS} characters in {path}")
    return hashlib.sha256(words[0]).digest()
