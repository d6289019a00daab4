"""Inspects the place of a shared server, without changing anything there."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from app_server.engine.support.filelock import is_held
from app_server.engine.support.socket_paths import SocketPaths

MOST_SIGNED = 200
"""Maximum size of the text that a server writes into its lock, in bytes."""

MOST_SAID = 1 << 16
"""Maximum size of the information that a server leaves for people, in bytes."""


class DaemonState(Struct, frozen=True):
    """The state of a place."""

    obstacle: str | None = None
    """Reason why no server can be at the place, as a clause; None if one can."""
    is_locked: bool = False
    """Whether a server holds the place."""
    is_starting: bool = False
    is_answered: bool = False
    """Whether a process listens on the socket."""
    is_left: bool = False
    """Whether the socket's file exists."""
    is_known_otherwise: bool = False
    """Whether another process listens under the name for clients of codex."""
    said: dict[str, Any] = msgspec.field(default_factory=dict)
    """Information that the server has left for people."""


def look(place: SocketPaths) -> DaemonState:
    if (obstacle := _obstacle(place.folder)) is not None:
        return DaemonState(obstacle)
    address = place.address()
    return DaemonState(
        is_locked=is_held(place.server_lock),
        is_starting=is_held(place.startup_lock),
        is_answered=address is not None and is_answered(address),
        is_left=os.path.lexists(place.socket),
        is_known_otherwise=_is_known_otherwise(place),
        said=_said(place.info),
    )


def is_answered(path: str) -> bool:
    """Return whether a process listens at the path of a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def _obstacle(folder: str) -> str | None:
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is {'a link' if stat.S_ISLNK(found.st_mode) else 'no folder'}"
    return None if found.st_uid == os.geteuid() else f"{folder} belongs to another user"


def _is_known_otherwise(place: SocketPaths) -> bool:
    name = place.reference
    if name is None or os.path.realpath(name) == os.path.realpath(place.socket):
        return False
    return is_answered(name)


def _said(path: str) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        said = json.loads(read_beginning(path, MOST_SAID))
        if isinstance(said, dict):
            return said
    return {}


def signature(place: SocketPaths) -> str:
    """Return the text in the lock of the server that holds the place: `pid 1, 0.60.0`. Empty if no server holds it."""
    with suppress(OSError):
        if is_held(place.server_lock):
            return read_beginning(place.server_lock, MOST_SIGNED).decode(errors="replace").strip()
    return ""


def read_beginning(path: str, most: int) -> bytes:
    """Return the first bytes of a regular file, without blocking. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return os.read(fd, most)
    finally:
        os.close(fd)
