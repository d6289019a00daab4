"""The state of a batch and its failures, read from its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from app_server.cli.batch.out_folder import LOCK, RESULTS, Results, read_file, read_lines
from app_server.cli.batch.worker_messages import Result, TaskUsage
from app_server.engine.support.filelock import is_held
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace

SHOWN: Final = 10
"""Maximum number of slow tasks, and of reasons of failures, in a summary."""
LONGEST_REASON: Final = 200
LONGEST_ID: Final = 100
SLOW_SECONDS: Final = 10.0
SLOW_TIMES: Final = 3.0
"""Conditions for a slow task: it took at least this many seconds, and this many times the median of all tasks."""


def summary(out: Path, ids: Collection[str]) -> Mapping[str, Json]:
    """Return the state of a batch of these tasks, as `batch status --json` prints it. Raises OSError."""
    stored = Results(out, ids)
    final = [each for each, _ in read_lines(out / RESULTS, Result) if each.id in stored.final]
    slowest = sorted(final, key=lambda each: -(each.seconds.setup + each.seconds.turn))
    reasons = Counter(each.error.message[:LONGEST_REASON] for each in final if each.error)
    costs = [each.cost for each in stored.spent.values() if each.cost is not None]
    usage = replace(sum(stored.spent.values(), TaskUsage()), cost=sum(costs) if costs else None)
    running = read_file(out, LOCK).strip() if is_held(str(out / LOCK)) else b""
    return {
        "tasks": len(ids),
        "left": len(ids) - len(final),
        "running": int(running) if running.isdigit() else 0,
        "statuses": dict(stored.statuses),
        "usage": msgspec.to_builtins(usage),
        "slowest": [each.id for each in slowest[:SHOWN]],
        "reasons": dict(reasons.most_common(SHOWN)),
    }


def failures(out: Path, results: Results) -> list[str]:
    """Return a line for each task that did not complete, up to `SHOWN`, and then a line with the number of the others.
    Raises OSError.
    """
    lines: list[str] = []
    for each, _ in read_lines(out / RESULTS, Result):
        if results.final.get(each.id) not in (None, "completed"):
            reason = each.error.message[:LONGEST_REASON] if each.error else ""
            lines.append(f"{each.id[:LONGEST_ID]}: {each.status}: {reason}")
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"and {len(lines) - SHOWN} tasks more"]


def slow_ones(out: Path) -> list[str]:
    """Return the ids of tasks that took much longer than most, the slowest first. Raises OSError."""
    taken = {each.id: each.seconds.setup + each.seconds.turn for each, _ in read_lines(out / RESULTS, Result)}
    least = max(SLOW_SECONDS, SLOW_TIMES * median(taken.values())) if taken else 0.0
    slow = sorted(
        (id for id, seconds in taken.items() if seconds >= least), key=taken.__getitem__, reverse=True
    )
    return slow[:SHOWN]
