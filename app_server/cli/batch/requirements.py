"""Requirements of a run before it begins, and the selection of a shard's tasks.

The requirements are prices, a folder in which its tasks may not write, and room for its workers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from app_server.cli.batch.batch_tasks import Numbered, Task
from app_server.cli.batch.budget import SharedLimits
from app_server.client.command_line import InvalidCommandLine
from app_server.engine.config.config_values import Config
from app_server.engine.support.real_path import within

WORKER_BYTES: Final = 256 << 20
"""Memory of a worker with some commands of its tasks, in bytes."""


def fitting(memory: Path) -> int:
    """Return the number of workers that fit into the processors and the free memory. `memory` is the path of Linux'
    file about memory.
    """
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        facts = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        return min(usable, (int(facts["MemAvailable"].split()[0]) << 10) // WORKER_BYTES)
    except (OSError, KeyError):
        return usable


def require_prices(limits: SharedLimits, config: Config, tasks: Sequence[Task]) -> None:
    models = {task.settings.model or config.thread.model for task in tasks}
    if limits.cost is not None and (unknown := sorted(models - limits.prices.keys())):
        raise InvalidCommandLine(
            f"--max-cost needs a price of the model {unknown[0]}: name a file that has it with --prices"
        )


def require_outside(out: Path, base: Path, roots: Iterable[str]) -> None:
    """Raise InvalidCommandLine if the settings let tasks write around OUT. Tasks in folders of their own run inside of
    OUT.
    """
    real = os.path.realpath(out)
    for root in roots:
        if within(real, os.path.realpath(base / root)):
            raise InvalidCommandLine(
                f"{out} lies in {root}, which the settings let commands write: name a folder outside of it"
            )


def of_shard(tasks: Sequence[Numbered], shard: str | None) -> Sequence[Numbered]:
    """Return the tasks of a shard `K/N`, or all tasks if there is no shard."""
    number, shards = map(int, (shard or "1/1").split("/"))
    return tasks[number - 1 :: shards]
