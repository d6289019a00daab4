"""The folders in which shared servers have their sockets. The sandbox keeps commands out of them.

The folder of a home's own socket is in the home. A named socket is elsewhere, and so is a socket whose path in the home
is too long. Each server with a named socket leaves a link to it in the home, so that all servers of the home know of
it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from app_server.engine.sandbox.plan import KnownFolders, SocketFolders
from app_server.engine.storage.batch_folders import known_folders as known_batches
from app_server.engine.support.filelock import is_held
from app_server.engine.support.socket_paths import (
    BadSocketPath,
    SocketPaths,
    named_place,
    place_of_home,
    runtime_folder_of,
    usual_folder,
)

LINKS = "places"
"""Name of the folder with the links, beside the home's socket."""


def socket_folders(home: str, runtime: str | None) -> SocketFolders:
    """Return the folders for a server of the home. `runtime` is $XDG_RUNTIME_DIR."""
    usual = [usual_folder()]
    if runtime and os.path.isabs(runtime):
        usual.append(runtime_folder_of(runtime))
    existing = [*usual, *(os.path.dirname(place.socket) for place in _named_places(home))]
    with suppress(OSError):
        existing.append(os.path.dirname(os.readlink(place_of_home(home).socket)))
    return SocketFolders(tuple(existing), tuple(usual))


def known_folders(home: str, runtime: str | None) -> KnownFolders:
    """Return the folders that commands of the home must not change, in their current state. `runtime` is
    $XDG_RUNTIME_DIR.
    """
    return KnownFolders(socket_folders(home, runtime), tuple(known_batches(home)))


def announce(home: str, place: SocketPaths) -> str:
    """Announce a named place to all servers of the home; return the link that announces it. Raises OSError, and
    BadSocketPath if the home has no folder for it.
    """
    ours = place_of_home(home)
    ours.make_ready()
    folder = os.path.join(ours.folder, LINKS)
    os.makedirs(folder, 0o700, exist_ok=True)
    link = os.path.join(folder, hashlib.sha256(os.fsencode(place.socket)).hexdigest()[:16])
    with suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(place.socket, link)
    return link


def _named_places(home: str) -> list[SocketPaths]:
    """Return the named places that a server of the home holds now."""
    folder = os.path.join(place_of_home(home).folder, LINKS)
    found = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        with suppress(OSError, BadSocketPath):
            place = named_place(os.readlink(os.path.join(folder, name)))
            if is_held(place.server_lock):
                found.append(place)
    return found
