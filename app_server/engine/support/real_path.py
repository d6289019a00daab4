"""Real paths on an untrusted disk, computed in the same way by every version of Python, and containment of paths.

At a link that cannot be followed, such as `/proc/PID/cwd` of another user or a cycle, `os.path.realpath` raises or
continues, depending on the version.
"""

from __future__ import annotations

import errno
import os


def followed_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path with all links resolved; parts that do not exist are kept. Raises OSError if a link
    cannot be followed.
    """
    place = real = os.path.realpath(path)
    while place != "/":
        if os.path.islink(place):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        place = os.path.dirname(place)
    return real


def real_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path with all links resolved, except those that cannot be followed, which are kept."""
    try:
        return followed_path(path)
    except OSError:
        folder, name = os.path.split(os.path.abspath(path))
        return os.path.join(real_path(folder), name)


def within(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or lies below it, by whole components; both are absolute and normalised."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
