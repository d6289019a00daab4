"""Reserves stdout for the wire as the first step of the process: a stray print must never reach a client. Fast to
import, because nothing else may run before.
"""

from __future__ import annotations

import os
import stat


def claim_stdout() -> int:
    """Redirect descriptor 1 to stderr. Returns the descriptor for the wire; if it is a pipe, it never blocks."""
    wire = os.dup(1)
    os.set_inheritable(wire, False)
    os.dup2(2, 1)
    if not stat.S_ISFIFO(os.fstat(wire).st_mode):
        return wire
    unblocking = own_description(wire)
    if unblocking != wire:
        os.close(wire)
    return unblocking


def own_description(fd: int) -> int:
    """Open the same pipe again, because O_NONBLOCK on an inherited description would change the client's end too. Needs
    access to the process's own files in /proc.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # no /proc: use the shared description
        os.set_blocking(fd, False)
        return fd
