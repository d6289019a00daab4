"""Reserves stdout for the wire as the first step of the process, so that a stray print never reaches a client; and
writes without an event loop. Fast to import, because no other module may run before.
"""

from __future__ import annotations

import os
import select
import stat

from app_server.server.bootstrap.descriptors import own_description


def claim_stdout() -> int:
    """Redirect descriptor 1 to stderr. Return the descriptor for the wire; if it is a pipe, it never blocks."""
    wire = os.dup(1)
    os.set_inheritable(wire, False)
    os.dup2(2, 1)
    if not stat.S_ISFIFO(os.fstat(wire).st_mode):
        return wire
    unblocking = own_description(wire)
    if unblocking != wire:
        os.close(wire)
    return unblocking


def write_all(fd: int, data: bytes) -> bool:
    """Write all of `data`, and wait if the descriptor does not block. Return False if the other end is closed."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True
