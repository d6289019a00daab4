"""All measured figures: name, meaning and unit of each, and the format of values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    SECONDS = "s"
    MEBIBYTES = "MiB"
    COUNT = ""


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    title: str
    unit: Unit = Unit.SECONDS


FIGURES = (
    Figure("start_s", "start, until `initialize` is answered"),
    Figure("ready_s", "start, until a first conversation is open"),
    Figure("idle_rss_mb", "memory then", Unit.MEBIBYTES),
    Figure("new_conversation_s", "new conversation"),
    Figure("turn_s", "short turn, median"),
    Figure("turn_p95_s", "short turn, 95th percentile"),
    Figure("turn_cpu_s", "short turn, CPU"),
    Figure("delta_s", "one delta, model to client"),
    Figure("stream_20k_s", "20,000 deltas"),
    Figure("stream_20k_cpu_s", "20,000 deltas, CPU"),
    Figure("stream_20k_lines", "20,000 deltas, delta lines that came", Unit.COUNT),
    Figure("command_s", "command"),
    Figure("command_cpu_s", "command, CPU of all processes"),
    Figure("sandboxed_command_s", "command in the sandbox"),
    Figure("sandboxed_command_cpu_s", "command in the sandbox, CPU"),
    Figure("output_64mib_s", "command that prints 64 MiB"),
    Figure("output_64mib_rss_mb", "memory then", Unit.MEBIBYTES),
    Figure("open_100_s", "100 conversations opened at once"),
    Figure("turn_100_s", "a turn of each at once"),
    Figure("rss_100_mb", "memory then", Unit.MEBIBYTES),
    Figure("tree_100_mb", "memory then, helper processes included", Unit.MEBIBYTES),
    Figure("list_first_page_s", "list 50 of 5,000, first request"),
    Figure("list_again_s", "list 50 of 5,000 once more"),
    Figure("list_1000_s", "list 1,000 of them in pages"),
    Figure("resume_20k_lines_s", "resume one of 20,000 lines"),
    Figure("file_search_20k_s", "file search among 20,000"),
)


def written(value: float, unit: Unit) -> str:
    """Return a value with three significant digits, in a suitable unit."""
    if math.isnan(value):
        return "–"
    if unit is Unit.COUNT:
        return f"{value:,.0f}"
    if unit is Unit.MEBIBYTES:
        return f"{value:.1f} MiB"
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{_three(value * 1e3)} ms" if value < 1 else f"{_three(value)} s"


def _three(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}"


def ratio_written(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
