"""Enters the working directory of a command. Standard library only.

A path that was judged, and perhaps approved by the user, is entered without following links: if a part of it is
replaced by a link at any moment, the command fails instead of running elsewhere.
"""

from __future__ import annotations

import os
import sys

COMPONENT = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
if sys.platform == "linux":
    COMPONENT |= os.O_PATH  # passing through a directory takes no right to list it


def enter(path: bytes, *, exact: bool) -> None:
    """Make `path` the working directory. `exact`: it is absolute, and no part of it may be a link."""
    if not exact:
        os.chdir(path)
        return
    folder = os.open(b"/", COMPONENT)
    try:
        for name in path.split(b"/"):
            if name:
                inner = os.open(name, COMPONENT, dir_fd=folder)
                os.close(folder)
                folder = inner
        os.fchdir(folder)
    finally:
        os.close(folder)
