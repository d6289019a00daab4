"""Input from outside without harm: how much is handled at once, how much structure it may have, and much of it without
the garbage collector. Pure.

A limit of bytes is not enough. A parser needs up to thirty times their size for input that consists of brackets, and
deeply nested input exhausts the stack of the code that serialises it.
"""

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

MAX_VALUES = 500_000
"""Values in one JSON document. The longest model responses, repeated in one event, contain some hundred thousand commas
and brackets, including those in their text. Half a million values take 0.1 s to parse and some 50 MB.
"""


def too_many_values(data: bytes) -> bool:
    """Tell whether there could be more than MAX_VALUES values. Counts separators, even inside strings, which takes a
    fraction of the time of parsing.
    """
    if len(data) < MAX_VALUES:
        return False
    return data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES


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
