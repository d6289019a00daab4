"""The real path of something on a disk that is not trusted: `os.path.realpath` raises for links that cannot be read."""

from __future__ import annotations

import os


def real_path(path: str | os.PathLike[str]) -> str:
    """The absolute path without links. A link that cannot be read, such as `/proc/PID/cwd` of another user, is kept."""
    try:
        return os.path.realpath(path)
    except OSError:
        folder, name = os.path.split(os.path.abspath(path))
        return os.path.join(real_path(folder), name)
