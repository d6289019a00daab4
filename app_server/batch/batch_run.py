"""One run of a batch, from the tasks as they were read to the exit status: checks everything, then begins."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct

from app_server.batch.budget import Ledger, SharedLimits
from app_server.batch.checkout import remove, sweep
from app_server.batch.coordinator import BUDGET, COMPLETED, OTHERS, STOPPED, Coordinator, Stop
from app_server.batch.local import Workers, local_workers
from app_server.batch.messages import CHECKOUTS, WORK, Run, Setup
from app_server.batch.out_folder import BatchFile, OutFolder
from app_server.batch.progress import Progress
from app_server.batch.repositories import TaskChecker, commit_key
from app_server.batch.results import RESULTS, Results, StoredStatus, read_lines
from app_server.batch.scheduler import Scheduler
from app_server.batch.secrets import known_secrets, secret_settings
from app_server.batch.tasks import Numbered, Task, listed, parse_tasks, place_key
from app_server.client.command_line import USAGE, InvalidCommandLine, single_errors
from app_server.client.failures import ServerEnded
from app_server.core.config.settings import load_config
from app_server.core.config.types import Config, SettingsPlace
from app_server.core.git.run_git import Git
from app_server.core.lazy import Lazy
from app_server.headless.named_files import read_prices
from app_server.startup.launch import server_home
from protocol.structs import replace

MOST_WORKERS: Final = 4
WORKER_BYTES: Final = 256 << 20
"""Memory for a worker with some commands of its tasks."""
TASKS_A_WORKER: Final = 4
"""Running at once, where `--jobs` does not say."""


_RAY: Lazy[Callable[[str], Workers]] = Lazy(lambda: import_module("app_server.batch.ray_runner").ray_workers)


class BatchPlan(Struct, frozen=True, kw_only=True):
    """Description of a run: the tasks, where they go, how they run."""

    args: argparse.Namespace
    """The options of runs."""
    out: Path
    raw: bytes
    """The tasks, as they were read."""
    source: str
    """How errors name where they come from."""
    batch: BatchFile
    """What it does; the commits are those that an earlier run has found."""
    environment: Mapping[str, str]
    again: Collection[str] = ()
    """The tasks whose results are put aside, so that they run again."""


async def run_plan(plan: BatchPlan, workers: Workers | None = None) -> int:
    """Check the tasks and run them, on this machine's workers if none are given; return the exit status. Raises
    InvalidCommandLine and ConfigError.
    """
    args, home, doing = plan.args, server_home(plan.environment), plan.batch.doing
    limits = SharedLimits(
        tokens_per_minute=args.tokens_per_minute,
        requests_per_minute=args.requests_per_minute,
        tokens=args.max_tokens,
        cost=args.max_cost,
        prices=read_prices(args.prices, home),
    )
    place = SettingsPlace(
        home=home, cwd=Path(plan.batch.folder), cli=doing.overrides, environment=plan.environment
    )
    config = load_config(place)
    read, problems = parse_tasks(plan.raw, doing.checkout, known_secrets(config, home, plan.environment))
    _require_prices(limits, config, [task for _, task in read])
    mine = of_shard(read, plan.batch.shard)
    final = {each.id for each in read_lines(plan.out / RESULTS, StoredStatus)}.difference(plan.again)
    left = [(number, task) for number, task in mine if task.id not in final]
    checker = TaskChecker(Git(home), Path(plan.batch.folder), doing.checkout, plan.environment)
    commits, more = await checker.check(left, plan.batch.commits)
    if problems := sorted([*problems, *more]):
        print(*listed(problems, plan.source), sep="\n", file=sys.stderr)  # noqa: T201
        return USAGE
    if not read:
        raise InvalidCommandLine(f"{plan.source} has no tasks")
    if args.dry_run:
        checkouts = sum(task.repo is not None and doing.checkout != "none" for _, task in left)
        print(f"{len(mine)} tasks, {len(left)} of them to run, {checkouts} checkouts")  # noqa: T201
        return COMPLETED
    if args.ray is not None and (secret := secret_settings(doing)):
        raise InvalidCommandLine(
            f"--ray: -c {secret[0]} is a secret: put it into the home or environment of the nodes"
        )
    runs = {task.id: Run(task=task, commit=commits.get(commit_key(task) or "")) for _, task in mine}
    with OutFolder(plan.out, home) as out:
        out.begin(replace(plan.batch, commits=commits), plan.raw, plan.again)
        return await _run(plan, workers or _workers(plan, len(left)), out, limits, runs)


def _workers(plan: BatchPlan, tasks: int) -> Workers:
    if plan.args.ray is not None:
        try:
            ray_workers = _RAY.get()
        except ImportError:
            raise InvalidCommandLine(
                "--ray needs ray: pip install '.[ray]' in a clone of the repository"
            ) from None
        return ray_workers(plan.args.ray)
    useful = min(MOST_WORKERS, plan.args.jobs or MOST_WORKERS, -(-tasks // TASKS_A_WORKER))
    return local_workers(max(min(useful, _fitting(Path("/proc/meminfo"))), 1), plan.environment)


def _fitting(memory: Path) -> int:
    """Return how many workers fit into the processors, and into what is free of the memory, by Linux' file of that."""
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        facts = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        free = int(facts["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError):
        return usable
    return min(usable, free // WORKER_BYTES)


async def _run(
    plan: BatchPlan,
    workers: Workers,
    out: OutFolder,
    limits: SharedLimits,
    runs: Mapping[str, Run],
) -> int:
    args, results = plan.args, Results(out.path, runs)
    ledger = Ledger(limits, anyio.current_time(), results.spent)
    scheduler = Scheduler(
        [run.task for id, run in runs.items() if id not in results.final],
        lambda task: place_key(task, plan.batch.doing.checkout),
        retries=args.retries,
        stop_after=args.stop_after,
    )
    events = sys.stdout if args.json else None
    progress = Progress(len(runs), results, ledger, anyio.current_time(), sys.stderr, events)
    coordinator = Coordinator(out, results, scheduler, ledger, workers, progress)
    setup = Setup(
        folder=plan.batch.folder,
        out=str(out.path),
        shared=args.ray is None,
        doing=plan.batch.doing,
        seconds=args.task_timeout,
        keep=args.keep,
    )
    try:
        if not scheduler.over:
            await coordinator.run(setup, runs, args.jobs or workers.count * TASKS_A_WORKER)
    except* ServerEnded as errors:
        coordinator.stop = Stop(STOPPED, str(single_errors(errors)[0]))
    except* OSError as errors:
        coordinator.stop = Stop(STOPPED, f"{out.path} cannot be used any more: {single_errors(errors)[0]}")
    await sweep(out.path / WORK)
    if not any((out.path / CHECKOUTS).glob("*")):  # those need the repositories of the batch
        await remove(out.path / WORK)
    status, sentence = _verdict(len(runs), results, coordinator.stop)
    progress.note(f"{sentence}; results: {out.path / RESULTS}")
    return status


def _verdict(tasks: int, results: Results, stop: Stop | None) -> tuple[int, str]:
    """Return the exit status, and the sentence that explains it."""
    completed = results.statuses["completed"]
    left = tasks - len(results.final)
    unmet = left or results.statuses["overBudget"]
    if stop is not None and (left or (stop.status == BUDGET and unmet)):
        return stop.status, f"{stop.reason}: {completed} of {tasks} tasks completed, {left} are left"
    if completed == tasks:
        return COMPLETED, f"all {tasks} tasks completed"
    return OTHERS, f"{completed} of {tasks} tasks completed, {tasks - completed - left} did not"


def _require_prices(limits: SharedLimits, config: Config, tasks: Sequence[Task]) -> None:
    models = {task.settings.model or config.model.name for task in tasks}
    if limits.cost is not None and (unknown := sorted(models - limits.prices.keys())):
        raise InvalidCommandLine(
            f"--max-cost needs a price of the model {unknown[0]}: name a file that has it with --prices"
        )


def of_shard(tasks: Sequence[Numbered], shard: str | None) -> Sequence[Numbered]:
    """Return the tasks of a shard `K/N`; without one, all."""
    number, shards = map(int, (shard or "1/1").split("/"))
    return tasks[number - 1 :: shards]
