"""Aggregation of a profile: self time by part of this project and by library.

The time of built-in functions counts for their callers; waiting for sockets is left out.
"""

from __future__ import annotations

import cProfile
import pstats
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Table

ROOT = Path(__file__).resolve().parent.parent
CORE_DEPTH, DEPTH = 3, 2

Function = tuple[str, int, str]
Timings = tuple[int, int, float, float]
"""Values of `pstats`: calls without recursion, calls, self time, time with callees. Times are in seconds."""


Shares = Sequence[tuple[str, float]]
"""Shares of the whole by name, largest first. They add up to at most 1."""


def shares(profiler: cProfile.Profile) -> Shares:
    by_part: dict[str, float] = defaultdict(float)
    for function, seconds in _self_times(profiler):
        by_part[part_of(function[0])] += seconds
    whole = sum(by_part.values()) or 1.0
    parts = ((name, seconds / whole) for name, seconds in by_part.items())
    return sorted(parts, key=lambda part: -part[1])


def _self_times(profiler: cProfile.Profile) -> list[tuple[Function, float]]:
    timings: dict[Function, tuple[int, int, float, float, dict[Function, Timings]]]
    timings = vars(pstats.Stats(profiler))["stats"]
    out: list[tuple[Function, float]] = []
    for function, (_, _, own, _, callers) in timings.items():
        if function[0] != "~":
            out.append((function, own))
        elif not _waits(function[2]):
            out.extend((caller, spent[2]) for caller, spent in callers.items())
    return out


def _waits(built_in: str) -> bool:
    return "'poll' of 'select." in built_in or "_lsprof" in built_in


def part_of(file: str) -> str:
    """Return the name of a folder of this project, or of a library."""
    path = Path(file)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        parts = path.relative_to(ROOT).with_suffix("").parts
        depth = CORE_DEPTH if parts[:2] == ("app_server", "core") else DEPTH
        return ".".join(parts[:depth]) if parts[0] != "protocol" else "app_server_protocol"
    library = re.search(r"site-packages/([^/.]+)", file) or re.search(r"python3\.\d+/([^/.]+)", file)
    if library:
        return library[1]
    return "generated" if file.startswith("<") else "built-in"


def parts_table(found: Shares, whole: float, least: float = 0.01) -> Table:
    """Return a table of the shares and of their parts of `whole`, in seconds. Shares below `least` are combined."""
    shown = [(name, share) for name, share in found if share >= least]
    rest = 1 - sum(share for _, share in shown)
    rows = [*shown, ("everything else", rest)]
    return [
        ("part", "share", "time"),
        *((name, f"{share:.1%}", _micro(share * whole)) for name, share in rows),
    ]


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-4 else f"{seconds * 1e6:,.0f} µs"
