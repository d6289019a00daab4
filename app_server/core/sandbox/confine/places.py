"""Opens the writable roots at the moment of use: the place that was granted, or nothing. Linux.

A plan has real paths, but a command may have changed since what lies at them. No symbolic link is followed here, so
what is opened still lies below every directory that the path names. A root that cannot be had so is left out.
"""

from __future__ import annotations

import errno
import os

from app_server.core.sandbox.confine.syscalls import open_place

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)


def open_roots(paths: list[bytes]) -> list[int]:
    """A descriptor for each root that is there, to be closed before the command runs."""
    opened: list[int] = []
    for path in paths:
        try:
            opened.append(open_place(path, os.O_DIRECTORY))
        except OSError as error:
            if error.errno not in GONE:
                raise
    return opened
