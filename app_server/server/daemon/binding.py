"""The socket on which a server listens at a place. It is bound so that its name never leads to a socket that does not
listen, and removed only while it is still this server's. The server holds the lock of the place meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from app_server import __version__
from app_server.engine.config.safe_file import write_file_atomically
from app_server.engine.storage.socket_folders import announce
from app_server.engine.support.filelock import LockHeld, hold
from app_server.engine.support.socket_paths import (
    SOCKET,
    BadSocketPath,
    SocketPaths,
    fits,
    make_socket_folder,
    runtime_folder_of,
    usual_folder,
)
from app_server.server.daemon.addresses import CannotListen
from app_server.server.proxy.probe_socket import is_answered, signature

BACKLOG = 4096
"""Maximum number of connections that wait to be accepted; systems have a bound of their own."""

ATTEMPTS = 5


class BoundSocket:
    """A place whose lock this process holds."""

    def __init__(
        self, place: SocketPaths, lock: int, listening: socket.socket | None = None, home: str | None = None
    ) -> None:
        """Take over a lock that is held. `listening` is a socket of a service manager, which is used once instead of a
        new one. A named place is announced to all servers of the `home`.
        """
        self.place, self.lock, self._listening = place, lock, listening
        self._real: str | None = None
        """Path at which this process has bound the socket; None if it has not."""
        self._identity: tuple[int, int] | None = None
        """Device and inode of the socket's file."""
        self._described = False
        self._home, self._announcement = home, ""
        self._sign()

    @property
    def is_bound(self) -> bool:
        """Whether this process has bound the socket there, and not a service manager."""
        return self._real is not None

    def _sign(self) -> None:
        """Write the holder's process id and version into the lock. They are for the error of other processes; no
        decision depends on them.
        """
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, f"pid {os.getpid()}, {__version__}".encode(), 0)

    def describe(self, text: str) -> None:
        """Write a file for people beside the socket, which lasts until the socket is removed. Raises OSError."""
        write_file_atomically(Path(self.place.info), text.encode() + b"\n", 0o600)
        self._described = True

    def listen(self, environment: Mapping[str, str]) -> socket.socket:
        """Return a socket that listens at the place, under all of its names. Raises the errors of `_bind`."""
        listening, self._listening = self._listening, None
        if listening is None:
            listening = self._bind(environment)
        name = self.place.reference
        if name is None and self._home is not None:
            self._announcement = announce(self._home, self.place)
        with suppress(OSError):  # the name for clients of codex, unless a server of theirs has it
            if name is not None and not is_answered(name):
                _link(SOCKET, name)
        return listening

    def _bind(self, environment: Mapping[str, str]) -> socket.socket:
        """Listen under the name of the place. Raises CannotListen, BadSocketPath and OSError."""
        path = self.place.socket
        if (address := self.place.address()) is not None and is_answered(address):
            raise CannotListen(f"another program listens on {path}")
        if os.path.lexists(path) and not (os.path.islink(path) or stat.S_ISSOCK(os.lstat(path).st_mode)):
            raise BadSocketPath(f"{path} is no socket")
        listening, real = self._listening_at(path, environment)
        try:
            status = os.lstat(real)
            self._real, self._identity = real, (status.st_dev, status.st_ino)
            if real != path:
                _link(real, path)
        except BaseException:
            listening.close()
            self.unlink()
            raise
        return listening

    def _listening_at(self, path: str, environment: Mapping[str, str]) -> tuple[socket.socket, str]:
        """Return a listening socket, and its path. A folder outside of the home may disappear while it is empty: then
        it is made again.
        """
        if fits(path) and fits(_beside(path)):
            return _listen_privately(path), path
        for _ in range(ATTEMPTS):
            real = _short_path(path, environment)
            with suppress(FileNotFoundError):
                return _listen_privately(real), real
        raise BadSocketPath(f"the folder {os.path.dirname(real)} cannot be made")

    def unlink(self) -> None:
        """Remove the names that are still this server's."""
        if self._described:
            self._described = False
            with suppress(OSError):
                os.unlink(self.place.info)
        if self._announcement:
            with suppress(OSError):
                os.unlink(self._announcement)
        path, real = self.place.socket, self._real
        if real is None:
            return
        self._real = None
        with suppress(OSError):
            if self.place.reference is not None and os.readlink(self.place.reference) == SOCKET:
                os.unlink(self.place.reference)
        with suppress(OSError):
            status = os.lstat(real)
            if (status.st_dev, status.st_ino) == self._identity:
                if real != path and os.readlink(path) == real:
                    os.unlink(path)
                os.unlink(real)

    def release(self) -> None:
        """Release the place for another server; its names were removed before."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def hold_place(
    place: SocketPaths, passed: socket.socket | None = None, *, seconds: float = 0, home: str | None = None
) -> BoundSocket:
    """Take the lock of a place, for which a service manager may have `passed` a socket; wait up to `seconds` for
    another server to release it. A named place is announced to all servers of the `home`. Raises CannotListen,
    BadSocketPath, and OSError if files cannot be locked.
    """
    place.make_ready()
    try:
        return BoundSocket(place, hold(place.server_lock, seconds), passed, home)
    except LockHeld:
        signed = signature(place)
        who = f"a server ({signed})" if signed else "a server"
        raise CannotListen(f"{who} already listens on {place.socket}") from None


def _listen_privately(path: str) -> socket.socket:
    """Bind under a temporary name, listen, and rename; only the user can access the file before a client
    can connect.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        with _taking_the_place_of(path) as beside:
            listening.bind(beside)
            os.chmod(beside, 0o600)
            listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _link(target: str, path: str) -> None:
    with _taking_the_place_of(path) as beside:
        os.symlink(target, beside)


@contextmanager
def _taking_the_place_of(path: str) -> Iterator[str]:
    """Yield a temporary name beside a path. The file that the block makes there is renamed to the path after the block,
    and removed if that fails.
    """
    beside = _beside(path)
    try:
        yield beside
        os.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def _beside(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{secrets.token_hex(4)}.sock")


def _short_path(path: str, environment: Mapping[str, str]) -> str:
    """Return the path of a socket whose own path is too long: in a folder that only the user can access. Raises
    BadSocketPath.
    """
    runtime = environment.get("XDG_RUNTIME_DIR")
    folder = runtime_folder_of(runtime) if runtime else usual_folder()
    make_socket_folder(folder)
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return os.path.join(folder, f"{name}.sock")
