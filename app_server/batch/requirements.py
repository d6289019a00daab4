"""What a run needs before it begins: prices, a folder that its tasks may not write in, room for its workers; and which
tasks are a shard's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from app_server.batch.budget import SharedLimits
from app_server.batch.tasks import Numbered, Task
from app_server.client.command_line import InvalidCommandLine
from app_server.core.config.types import Config
from app_server.core.real_path import within

WORKER_BYTES: Final = 256 << 20
"""Memory for a worker with some commands of its tasks."""


def fitting(memory: Path) -> int:
    """Return how many workers fit into the processors, and into what is free of the memory, by Linux' file of that."""
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        facts = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        return min(usable, (int(facts["MemAvailable"].split()[0]) << 10) // WORKER_BYTES)
    except (OSError, KeyError):
        return usable


def require_prices(limits: SharedLimits, config: Config, tasks: Sequence[Task]) -> None:
    models = {task.settings.model or config.model.name for task in tasks}
    if limits.cost is not None and (unknown := sorted(models - limits.prices.keys())):
        raise InvalidCommandLine(
            f"--max-cost needs a price of the model {unknown[0]}: name a file that has it with --prices"
        )


def require_outside(out: Path, base: Path, roots: Iterable[str]) -> None:
    """Raises InvalidCommandLine where tasks in folders of their own, which lie in OUT, may write around it as well."""
    real = os.path.realpath(out)
    for root in roots:
        if within(real, os.path.realpath(base / root)):
            raise InvalidCommandLine(
                f"{out} lies in {root}, which the settings let commands write: name a folder outside of it"
            )


def of_shard(tasks: Sequence[Numbered], shard: str | None) -> Sequence[Numbered]:
    """Return the tasks of a shard `K/N`; without one, all."""
    number, shards = map(int, (shard or "1/1").split("/"))
    return tasks[number - 1 :: shards]
