"""Takes stdout for the wire, first thing in the process: a stray print must never reach a client. No imports that
take time, since nothing else may happen before.
"""

from __future__ import annotations

import os
import stat


def claim_stdout() -> int:
    """Descriptor 1 points at stderr from now on. Returns the descriptor to write to; a pipe's never blocks."""
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
    """The same pipe, opened once more, because O_NONBLOCK on an inherited description would change the client's end
    too. Possible only as long as the process may look at itself in /proc.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # then the shared description has to do
        os.set_blocking(fd, False)
        return fd
