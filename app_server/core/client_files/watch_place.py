"""Where changes of a watched path are noticed with inotify."""

from __future__ import annotations

import os
import stat

from app_server.core.client_files.inotify import Inotify
from app_server.core.client_files.opening import FileRefused
from protocol.records import dataclass

TRIES = 16
"""How often a path is looked at anew that changes while it is looked at."""


@dataclass(frozen=True, slots=True)
class WatchPlace:
    inside: int | None = None
    """The descriptor of the path itself, while it is a directory."""
    above: int | None = None
    """That of the nearest directory above it."""
    component: str = ""
    """The name in that directory which leads to the path."""
    exists: bool = False


NOWHERE = WatchPlace()


def find_place(source: Inotify, path: str, used: set[int]) -> WatchPlace:
    """Watch the path and the nearest directory above it. It may change meanwhile, so look again after watching. `used`
    gets every descriptor that was made. Raises FileRefused, OSError.
    """
    for _ in range(TRIES):
        folder, component = _nearest(path)
        above = source.add(folder) if component else None
        inside = source.add(path) if _is_directory(path) else None
        used |= {each for each in (above, inside) if each is not None}
        if _nearest(path) == (folder, component) and _is_directory(path) == (inside is not None):
            return WatchPlace(inside, above, component, os.path.lexists(path))
    raise FileRefused(f"path `{path}` changes too quickly to be watched")


def _nearest(path: str) -> tuple[str, str]:
    """The nearest directory above `path`, and the name in it that leads on; no name for the root directory."""
    folder, component = os.path.split(path)
    while component and not _is_directory(folder):
        folder, component = os.path.split(folder)
    return folder, component


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return False
