"""Real paths on a disk that is not trusted, the same with every version of Python, and what lies in what.

At a link that cannot be followed, such as `/proc/PID/cwd` of another user or one in a circle, `os.path.realpath` raises
or goes on, as the version has it.
"""

from __future__ import annotations

import errno
import os


def followed_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path without links; what does not exist is kept. Raises OSError where a link cannot be
    followed.
    """
    place = real = os.path.realpath(path)
    while place != "/":
        if os.path.islink(place):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        place = os.path.dirname(place)
    return real


def real_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path without links, but for those that cannot be followed, which are kept."""
    try:
        return followed_path(path)
    except OSError:
        folder, name = os.path.split(os.path.abspath(path))
        return os.path.join(real_path(folder), name)


def within(path: str, folder: str) -> bool:
    """Tell whether `path` is `folder` or lies below it, by whole components; both are absolute and plain."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
