"""Descriptors that this process has inherited. Fast to import."""

from __future__ import annotations

import os


def own_description(fd: int) -> int:
    """Open the same pipe again, because O_NONBLOCK on an inherited description would change the client's end too. Needs
    access to the process's own files in /proc.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no /proc: use the shared description
        os.set_blocking(fd, False)
        return fd
