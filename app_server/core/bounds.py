"""Much input without harm to others: how much is handled at once, and without the garbage collector. Pure."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

PIECE_BYTES = 64 * 1024
"""Bytes handled before other tasks run. Even split into the shortest possible lines, they take some ten milliseconds, a
delay that no client notices. Network reads have the same size.
"""

PIECE_STEPS = 256
"""Events, lines or chunks handled before other tasks run: parsing and forwarding one takes ten to a hundred
microseconds.
"""


@contextmanager
def without_collector() -> Iterator[None]:
    """Disables garbage collection: it would double the time of reading a long conversation."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
