"""Opens the writable roots of a plan without following links. Linux.

A plan has real paths, but a command may have replaced a part of them since. Without links, the opened folder is still
the one that was granted. A root that cannot be opened in this way is left out.
"""

from __future__ import annotations

import errno
import os

from app_server.core.sandbox.confine.syscalls import open_place

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)


def open_roots(paths: list[bytes]) -> list[int]:
    """A descriptor for each root that exists; the caller closes them before the command runs."""
    opened: list[int] = []
    for path in paths:
        try:
            opened.append(open_place(path, os.O_DIRECTORY))
        except OSError as error:
            if error.errno not in GONE:
                raise
    return opened
