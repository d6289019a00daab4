"""The start of a shared server, as that server has it: who waits for it, and the lock that keeps others from one."""

from __future__ import annotations

import os

from app_server.places.home import home_folder
from app_server.places.locks import LockHeld, hold
from app_server.places.socket_place import PlaceRefused, place_of_home

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping

READY = b"ready\n"


class Startup:
    """A lock that is held until the server answers, and the pipe of a starter that waits for that."""

    def __init__(self, lock: int, pipe: int | None) -> None:
        self._lock, self._pipe = lock, pipe
        self.is_watched = pipe is None
        """Whether somebody watches what the server says; else its stderr is its log."""

    def end(self) -> None:
        """Let others start servers, because this one answers, and tell the starter."""
        if self._pipe is not None:
            try:
                os.write(self._pipe, READY)
            except OSError:
                pass  # it has gone
            os.close(self._pipe)
        os.close(self._lock)


def startup_of(descriptors: str | None, environment: Mapping[str, str]) -> Startup | None:
    """Take over the two descriptors of a starter. A service manager takes no lock, though its clients are waiting
    already: then the lock is taken here, before anything is loaded.
    """
    if descriptors is not None:
        lock, pipe = map(int, descriptors.split(","))
        for fd in (lock, pipe):
            os.set_inheritable(fd, False)
        return Startup(lock, pipe)
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    place = place_of_home(home_folder(environment))
    try:
        place.make_ready()
        return Startup(hold(place.startup_lock), None)
    except (LockHeld, PlaceRefused, OSError):
        return None  # the place is looked at again, where it is told what is wrong
