"""Takes stdout for the wire, first thing in the process: a stray print must never reach a client. No imports that
take time, since nothing else may happen before.
"""

from __future__ import annotations

import os


def claim_stdout() -> int:
    """Descriptor 1 points at stderr from now on. Returns the descriptor to write to."""
    wire = os.dup(1)
    os.set_inheritable(wire, False)
    os.dup2(2, 1)
    return wire
