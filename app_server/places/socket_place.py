"""Where a shared server is found: its socket and the files beside it. Fast to import.

The place of a home is the folder `app-server-control` in it. A place that is named is a path in a folder of the user.
Clients connect to a place, servers make it ready first. What is not the user's alone is put right where it is the
user's, and refused where it is not.
"""

from __future__ import annotations

import os
import stat
import sys

from app_server.places.private_folder import PRIVATE, UnsafeFolder, make_private_folder

FOLDER = "app-server-control"
SOCKET = "app-server.sock"
REFERENCE_SOCKET = "app-server-control.sock"
"""The name under which clients of codex look for a server."""

LONGEST_ADDRESS = 103 if sys.platform == "darwin" else 107
"""Bytes of a socket's path that the system takes, without the NUL at its end."""

STARTS_WITHIN = 10.0
"""Seconds for a server to be ready, and for another starter to end."""


class PlaceRefused(Exception):
    """Nothing can be put there; the text is a sentence for the user."""


class SocketPlace:
    """The names of one place."""

    def __init__(self, socket: str, stem: str, reference: str | None = None) -> None:
        """`stem` begins the names of the files beside the socket."""
        self.socket = socket
        self.reference = reference
        """A second name of the socket, where the place has one."""
        self.server_lock = f"{stem}server.lock"
        """Locked as long as a server lives: who holds it owns the socket."""
        self.startup_lock = f"{stem}startup.lock"
        """Held by who starts a server, until that one is ready."""
        self.info = f"{stem}server.json"
        """What people and `daemon status` are told of the server. It decides nothing."""
        self.log = f"{stem}app-server.log"

    @property
    def folder(self) -> str:
        return os.path.dirname(self.socket)

    @property
    def listen(self) -> str:
        """Return the address as a server is told it."""
        return "unix://" if self.reference else f"unix://{self.socket}"

    def make_ready(self) -> None:
        """Make the folder, or look at it, before anything is put there. Raises PlaceRefused and OSError."""
        if self.reference is not None:
            os.makedirs(os.path.dirname(self.folder), PRIVATE, exist_ok=True)
            make_socket_folder(self.folder)
            return
        try:
            found = os.stat(self.folder)
        except FileNotFoundError:
            raise PlaceRefused(f"the folder {self.folder} does not exist") from None
        if not stat.S_ISDIR(found.st_mode):
            raise PlaceRefused(f"{self.folder} is no folder")
        if found.st_uid != os.geteuid():
            raise PlaceRefused(f"the folder {self.folder} belongs to another user")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PlaceRefused(f"others may write to the folder {self.folder}")

    def address(self) -> str | None:
        """Return the path to connect to: the socket, or what a link leads to where its path is too long. None where
        there is no link yet.
        """
        if fits(self.socket):
            return self.socket
        try:
            return os.readlink(self.socket)
        except OSError:
            return None


def place_of_home(home: str) -> SocketPlace:
    folder = os.path.join(home, FOLDER)
    socket, reference = os.path.join(folder, SOCKET), os.path.join(folder, REFERENCE_SOCKET)
    return SocketPlace(socket, os.path.join(folder, ""), reference)


def named_place(socket: str) -> SocketPlace:
    """Return the place of a socket that is named by its path. Raises PlaceRefused."""
    if not os.path.isabs(socket) or socket.endswith("/") or "\0" in socket:
        raise PlaceRefused(f"a socket needs an absolute path, got {socket!r}")
    return SocketPlace(socket, f"{socket}.")


def place_at(home: str, socket: str | None) -> SocketPlace:
    """Return the named place, or that of the home. Raises PlaceRefused."""
    ours = place_of_home(home)
    return ours if socket is None or socket == ours.socket else named_place(socket)


def usual_folder() -> str:
    """Return where sockets lie whose path in the home is too long, without a folder for them from the system."""
    return f"/tmp/app-server-{os.geteuid()}"


def runtime_folder_of(runtime: str) -> str:
    """Return where such sockets lie in the folder for them from the system."""
    return os.path.join(runtime, "app-server")


def fits(path: str) -> bool:
    """Tell whether the system takes the path as the address of a socket."""
    return len(os.fsencode(path)) <= LONGEST_ADDRESS


def make_socket_folder(path: str) -> None:
    """Make a folder for sockets that is the user's alone, or make it so. Raises PlaceRefused and OSError."""
    try:
        make_private_folder(path)
    except UnsafeFolder as error:
        raise PlaceRefused(str(error)) from None
