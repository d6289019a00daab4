"""How much of what comes from outside is taken at once, and how much structure it may have. Pure.

Bytes alone are no measure: a parser makes up to thirty times as much memory of them where they are nothing but
brackets, and what is nested deeply exhausts the stack of whoever writes it again.
"""

from __future__ import annotations

from protocol.base import Json

PIECE_BYTES = 64 * 1024
"""The most that is handled without giving way to others. What Python does with so many bytes, split into the shortest
lines that there are, takes some ten milliseconds: a wait that no client notices. Reads of the network are as large.
"""

PIECE_STEPS = 256
"""And so many events, lines or pieces, however short: each costs ten to a hundred microseconds when it is parsed and
passed on.
"""

MAX_DEPTH = 200
"""Levels of one JSON document. The fast parser takes as many; nobody's protocol has more than some twenty."""

MAX_VALUES = 500_000
"""Values in one JSON document. The longest answers that models give, repeated in one event, hold some hundred thousand
commas and brackets, those of their text included; half a million values are parsed in 0.1 s into some 50 MB.
"""


def too_many_values(data: bytes) -> bool:
    """Whether there could be more values than anybody sends. Counts what separates them, also inside of text, which
    takes a fraction of the time of parsing.
    """
    if len(data) < MAX_VALUES:
        return False
    return data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES


def nested_too_deeply(value: Json) -> bool:
    """Whether writing it could exhaust the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True
