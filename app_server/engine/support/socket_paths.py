"""The place of a shared server: its socket and the files beside it. Fast to import.

The place of a home is the folder `app-server-control` in it. A named place is a path in a folder of the user. Clients
connect to a place; servers prepare it first. If others have rights to a folder of the user, those rights are removed; a
folder of another user is refused.
"""

from __future__ import annotations

import os
import stat
import sys

from app_server.engine.support.private_folder import PRIVATE, UnsafeFolder, make_private_folder

FOLDER = "app-server-control"
SOCKET = "app-server.sock"
REFERENCE_SOCKET = "app-server-control.sock"
"""Name under which clients of codex look for a server."""

LONGEST_ADDRESS = 103 if sys.platform == "darwin" else 107
"""Maximum length of a socket's path, in bytes, without the NUL at its end: the limit of the system."""

STARTS_WITHIN = 10.0
"""Time for a server to become ready, and for another starter to end, in seconds."""


class BadSocketPath(Exception):
    """Raised if a path cannot be a place; the text is a sentence for the user."""


class SocketPaths:
    """The names of one place."""

    def __init__(self, socket: str, stem: str, reference: str | None = None) -> None:
        """Name the files of a place. `stem` is the prefix of the files beside the socket."""
        self.socket = socket
        self.reference = reference
        """Second name of the socket; None if the place has none."""
        self.server_lock = f"{stem}server.lock"
        """Lock that a server holds as long as it lives: its holder owns the socket."""
        self.startup_lock = f"{stem}startup.lock"
        """Lock that the starter of a server holds until the server is ready."""
        self.info = f"{stem}server.json"
        """File with information about the server, for people and for `daemon status`. No decision depends on it."""
        self.log = f"{stem}app-server.log"

    @property
    def folder(self) -> str:
        return os.path.dirname(self.socket)

    @property
    def listen(self) -> str:
        """Address of the place, as it is written after `--listen`."""
        return "unix://" if self.reference else f"unix://{self.socket}"

    def make_ready(self) -> None:
        """Make the folder, or check it, before files are made there. Raises BadSocketPath and OSError."""
        if self.reference is not None:
            os.makedirs(os.path.dirname(self.folder), PRIVATE, exist_ok=True)
            make_socket_folder(self.folder)
            return
        try:
            found = os.stat(self.folder)
        except FileNotFoundError:
            raise BadSocketPath(f"the folder {self.folder} does not exist") from None
        if not stat.S_ISDIR(found.st_mode):
            raise BadSocketPath(f"{self.folder} is no folder")
        if found.st_uid != os.geteuid():
            raise BadSocketPath(f"the folder {self.folder} belongs to another user")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise BadSocketPath(f"others may write to the folder {self.folder}")

    def address(self) -> str | None:
        """Return the path to connect to: the socket or, if its path is too long, the target of a link. None if there is
        no link yet.
        """
        if fits(self.socket):
            return self.socket
        try:
            return os.readlink(self.socket)
        except OSError:
            return None


def place_of_home(home: str) -> SocketPaths:
    folder = os.path.join(home, FOLDER)
    socket, reference = os.path.join(folder, SOCKET), os.path.join(folder, REFERENCE_SOCKET)
    return SocketPaths(socket, os.path.join(folder, ""), reference)


def named_place(socket: str) -> SocketPaths:
    """Return the place of a socket that is named by its path. Raises BadSocketPath."""
    if not os.path.isabs(socket) or socket.endswith("/") or "\0" in socket:
        raise BadSocketPath(f"a socket needs an absolute path, got {socket!r}")
    return SocketPaths(socket, f"{socket}.")


def place_at(home: str, socket: str | None) -> SocketPaths:
    """Return the named place, or that of the home. Raises BadSocketPath."""
    ours = place_of_home(home)
    return ours if socket is None or socket == ours.socket else named_place(socket)


def usual_folder() -> str:
    """Return the folder of sockets whose path in the home is too long, for systems without a runtime folder."""
    return f"/tmp/app-server-{os.geteuid()}"


def runtime_folder_of(runtime: str) -> str:
    """Return the folder of such sockets in the system's runtime folder."""
    return os.path.join(runtime, "app-server")


def fits(path: str) -> bool:
    """Return whether the path is short enough for the address of a socket."""
    return len(os.fsencode(path)) <= LONGEST_ADDRESS


def make_socket_folder(path: str) -> None:
    """Make a folder for sockets that only the user can access, or remove the rights of others to it. Raises
    BadSocketPath and OSError.
    """
    try:
        make_private_folder(path)
    except UnsafeFolder as error:
        raise BadSocketPath(str(error)) from None
