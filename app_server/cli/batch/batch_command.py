"""`app-server batch`: checks the tasks of a file and runs them, shows the state of a batch, runs parts of it again,
merges shards.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, get_args

import anyio
from msgspec import Struct

from app_server.cli.batch import ray_runner
from app_server.cli.batch.batch_summary import summary
from app_server.cli.batch.batch_tasks import Task, listed, parse_tasks
from app_server.cli.batch.budget import Ledger, SharedLimits
from app_server.cli.batch.checkout import TaskChecker, commit_key, place_key, remove
from app_server.cli.batch.coordinator import BUDGET, COMPLETED, OTHERS, STOPPED, Coordinator, Stop
from app_server.cli.batch.local import Workers, local_workers, sweep
from app_server.cli.batch.out_folder import (
    RESULTS,
    TASKS,
    BatchFile,
    OutFolder,
    Results,
    final_statuses,
    is_known,
    read_batch,
    read_file,
    require_batch,
)
from app_server.cli.batch.progress import Progress
from app_server.cli.batch.requirements import fitting, of_shard, require_outside, require_prices
from app_server.cli.batch.scheduler import Scheduler
from app_server.cli.batch.secrets import known_secrets, secret_settings, with_secrets, without_secrets
from app_server.cli.batch.worker_messages import CHECKOUTS, WORK, Doing, Setup, Status
from app_server.cli.demo import workspace
from app_server.cli.exec import output_schema
from app_server.cli.exec.output_file import read_prices
from app_server.cli.named_files import read_input
from app_server.client.command_line import USAGE, InvalidCommandLine, printable, single_errors
from app_server.client.failures import ServerEnded
from app_server.engine.config.config_values import CliOverrides, Config, SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.hooks import hook_files, hook_notice, hook_presence
from app_server.engine.support.engine_errors import ConfigError
from app_server.engine.support.private_folders import temporary_folder
from app_server.engine.workspace.git.find_git import find_git
from app_server.engine.workspace.git.run_git import Git
from app_server.server.bootstrap.launch import parse_launch, server_home, working_directory
from app_server.server.bootstrap.overrides import cli_overrides
from app_server.server.bootstrap.standard_streams import complain
from app_server_protocol.policy import WorkspaceWrite
from app_server_protocol.values import replace

AGAIN: Final[tuple[Status, ...]] = ("failed", "lost")
"""Statuses of the tasks that `retry` runs again by default."""
FROM_STDIN: Final = "-"
MAX_TASKS_BYTES: Final = 1 << 30
NEVER: Final = 'approval_policy="never"'
"""Approval policy of batches, unless the command line sets another: no user is there to be asked."""
MOST_WORKERS: Final = 4
SHOWN_LEFT_OUT: Final = 20
TASKS_A_WORKER: Final = 4
"""Number of running tasks per worker, if `--jobs` is not given."""


def run_batch(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        match args.command:
            case "batch status":
                return _status(Path(args.out), as_json=args.json)
            case "batch merge":
                return _merge(Path(args.out), list(map(Path, args.shards)))
            case "batch retry":
                return anyio.run(run_plan, retried(args))
            case _ if args.demo:
                return anyio.run(_demonstrate, args)
            case _:
                return anyio.run(run_plan, planned(args, os.environ))
    except (InvalidCommandLine, ConfigError) as error:
        complain(f"app-server {args.command}", printable(str(error)))
        return USAGE
    except OSError as error:
        complain(f"app-server {args.command}", printable(f"a folder cannot be used any more: {error}"))
        return STOPPED


# --- planning
class BatchPlan(Struct, frozen=True, kw_only=True):
    """Description of a run."""

    args: argparse.Namespace
    """Options of runs. `tasks` is the name of the tasks' source in errors."""
    raw: bytes
    """Tasks as they were read."""
    batch: BatchFile
    """Description of the batch; the commits are those that an earlier run has found."""
    environment: Mapping[str, str]
    again: Collection[str] = ()
    """Ids of the tasks whose results are put aside, so that they run again."""


def planned(args: argparse.Namespace, environment: Mapping[str, str]) -> BatchPlan:
    """Return the plan to run the tasks of a file. Raises InvalidCommandLine."""
    if args.tasks is None or args.out is None:
        raise InvalidCommandLine("expected a file of tasks and a folder for results: TASKS.jsonl -o OUT")
    out, raw, named = Path(args.out), _raw(args.tasks), args.output_schema
    home = server_home(environment)
    schema = None if named is None else output_schema.OutputSchema.read(Path(named)).schema
    doing = Doing(overrides=_overrides(args), checkout=args.checkout, schema=schema)
    batch = BatchFile(
        digest=sha256(raw).hexdigest(), folder=str(working_directory()), doing=doing, shard=args.shard
    )
    if (before := None if args.allow_changed else read_batch(out)) is not None:
        for what, same in (
            ("other tasks", batch.digest == before.digest),
            ("another shard", batch.shard == before.shard),
            ("other settings of what tasks do", without_secrets(doing) == before.doing),
        ):
            if not same:
                raise InvalidCommandLine(f"{out} is of {what}: name another folder, or say --allow-changed")
        # The command line repeats the settings. The base folder of paths is not repeated, so a stored one is trusted
        # only if this home wrote it.
        folder = before.folder if is_known(out, home) else batch.folder
        batch = replace(before, doing=doing, folder=folder)
    args.tasks = "stdin" if args.tasks == FROM_STDIN else args.tasks
    return BatchPlan(args=args, raw=raw, batch=batch, environment=environment)


def retried(args: argparse.Namespace) -> BatchPlan:
    """Return the plan to run tasks of a batch again, with the settings with which it was begun. Raises
    InvalidCommandLine.
    """
    out, statuses, ids = Path(args.out), args.status, args.id
    before, args.tasks = require_batch(out), str(out / TASKS)
    if not is_known(out, server_home(os.environ)):
        raise InvalidCommandLine(
            f"{out} does not say what a command of this home wrote there, so its settings are not believed: "
            "run the command again with which it was begun"
        )
    if wrong := [word for word in statuses if word not in get_args(Status)]:
        raise InvalidCommandLine(
            f"--status: expected some of {', '.join(get_args(Status))}, got {wrong[0]!r}"
        )
    final = final_statuses(out)
    if unknown := [id for id in ids if id not in final]:
        raise InvalidCommandLine(f"--id: the task {unknown[0]!r} has no result in {out}")
    wanted = statuses or (get_args(Status) if ids else AGAIN)
    again = {id for id, status in final.items() if status in wanted and (not ids or id in ids)}
    batch = replace(before, doing=with_secrets(before.doing, dict(_overrides(args).settings)))
    raw = _stored_tasks(out)
    if sha256(raw).hexdigest() != before.digest:
        raise InvalidCommandLine(f"{out / TASKS} was changed since the batch began")
    return BatchPlan(args=args, raw=raw, batch=batch, environment=os.environ, again=again)


def _overrides(args: argparse.Namespace) -> CliOverrides:
    """Return the settings of the command line."""
    given = vars(args)
    try:
        launch = parse_launch({**given, "config": [NEVER, *given.get("config", ())]}, os.environ)
    except ValueError as error:  # an invalid limit in the environment
        raise InvalidCommandLine(str(error)) from None
    return cli_overrides(launch)


def _raw(source: str) -> bytes:
    try:
        if source == FROM_STDIN:
            return sys.stdin.buffer.read()
        return read_input(Path(source), most=MAX_TASKS_BYTES)
    except OSError as error:
        raise InvalidCommandLine(f"{source}: {error.strerror or error}") from None


def _stored_tasks(out: Path) -> bytes:
    try:
        return read_file(out, TASKS)
    except OSError as error:
        raise InvalidCommandLine(f"{out / TASKS}: {error.strerror or error}") from None


# --- running
async def run_plan(plan: BatchPlan, workers: Workers | None = None) -> int:
    """Check the tasks and run them, on this machine's workers if none are given. Return the exit status. Raises
    InvalidCommandLine and ConfigError.
    """
    args, home, doing, out = plan.args, server_home(plan.environment), plan.batch.doing, Path(plan.args.out)
    limits = SharedLimits(
        tokens_per_minute=args.tokens_per_minute,
        requests_per_minute=args.requests_per_minute,
        tokens=args.max_tokens,
        cost=args.max_cost,
        prices=read_prices(args.prices, home),
    )
    base, environment = Path(plan.batch.folder), plan.environment
    source = SettingsSource(home=home, cwd=base, cli=doing.overrides, environment=environment)
    config = load_config(source)
    read, problems = parse_tasks(plan.raw, doing.checkout, known_secrets(config, home, environment))
    require_prices(limits, config, [task for _, task in read])
    policy = config.thread.sandbox_policy
    require_outside(out, base, policy.writable_roots if isinstance(policy, WorkspaceWrite) else ())
    mine, final = of_shard(read, plan.batch.shard), final_statuses(out).keys() - plan.again
    left = [(number, task) for number, task in mine if task.id not in final]
    checker = TaskChecker(Git(home, find_git(environment, base)), base, doing.checkout, environment)
    commits, more = await checker.check(left, plan.batch.commits)
    if problems := sorted([*problems, *more]):
        print(*listed(problems, args.tasks), sep="\n", file=sys.stderr)  # noqa: T201
        return USAGE
    if not read:
        raise InvalidCommandLine(f"{args.tasks} has no tasks")
    if args.dry_run:
        checkouts = sum(task.repo is not None and doing.checkout != "none" for _, task in left)
        print(f"{len(mine)} tasks, {len(left)} of them to run, {checkouts} checkouts")  # noqa: T201
        return COMPLETED
    _warn_of_hooks(config, source)
    workers = workers or _workers(plan, len(left))
    plan = replace(plan, batch=replace(plan.batch, commits=commits))
    with OutFolder(out, home) as folder:
        folder.begin(plan.batch, plan.raw, plan.again)
        return await _run(plan, workers, folder, limits, {task.id: task for _, task in mine})


def _warn_of_hooks(config: Config, source: SettingsSource) -> None:
    """Print one line for the whole batch about hooks that do not run in its tasks."""
    if hook_presence.may_have_hooks(config, str(source.cwd)):
        hooks = hook_files.HookFiles(config, source).load(str(source.cwd))
        if (notice := hook_notice.hooks_notice(hooks)) is not None:
            complain("app-server batch", printable(notice))


async def _run(
    plan: BatchPlan, workers: Workers, out: OutFolder, limits: SharedLimits, tasks: Mapping[str, Task]
) -> int:
    args, doing, commits, results = plan.args, plan.batch.doing, plan.batch.commits, Results(out.path, tasks)
    ledger = Ledger(limits, anyio.current_time(), results.spent)
    left = (task for id, task in tasks.items() if id not in results.final)
    scheduler = Scheduler(
        (replace(task, ref=commits.get(commit_key(task) or "") or None) for task in left),
        lambda task: place_key(task, Path(plan.batch.folder), doing.checkout),
        retries=args.retries,
        stop_after=args.stop_after,
    )
    events = sys.stdout if args.json else None
    progress = Progress(len(tasks), results, ledger, anyio.current_time(), sys.stderr, events)
    coordinator = Coordinator(out, results, scheduler, ledger, workers, progress)
    setup = Setup(
        folder=plan.batch.folder,
        out=str(out.path),
        shared=args.ray is None,
        doing=doing,
        seconds=args.task_timeout,
        keep=args.keep,
    )
    try:
        if not scheduler.over:
            await coordinator.run(setup, args.jobs or workers.count * TASKS_A_WORKER)
    except* ServerEnded as errors:
        coordinator.stop = Stop(STOPPED, str(single_errors(errors)[0]))
    except* OSError as errors:
        coordinator.stop = Stop(STOPPED, f"{out.path} cannot be used any more: {single_errors(errors)[0]}")
    await sweep(out.path / WORK)
    if not any((out.path / CHECKOUTS).glob("*")):  # kept checkouts need the repositories of the batch
        await remove(out.path / WORK)
    status, sentence = _verdict(len(tasks), results, coordinator.stop)
    progress.note(f"{sentence}; results: {out.path / RESULTS}")
    return status


def _workers(plan: BatchPlan, tasks: int) -> Workers:
    if plan.args.ray is not None:
        if secret := secret_settings(plan.batch.doing):
            raise InvalidCommandLine(
                f"--ray: -c {secret[0]} is a secret: put it into the home or environment of the nodes"
            )
        try:
            return ray_runner.ray_workers(plan.args.ray)
        except ImportError:  # it needs an extra
            raise InvalidCommandLine(
                "--ray needs ray: pip install 'app-server-agent[ray]' where app-server is installed"
            ) from None
    useful = min(MOST_WORKERS, plan.args.jobs or MOST_WORKERS, -(-tasks // TASKS_A_WORKER))
    return local_workers(max(min(useful, fitting(Path("/proc/meminfo"))), 1), plan.environment)


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


# --- status, merge, demo
def _status(out: Path, *, as_json: bool) -> int:
    shard = require_batch(out).shard
    tasks, _ = parse_tasks(_stored_tasks(out), "worktree", {})
    found = summary(out, {task.id for _, task in of_shard(tasks, shard)})
    if as_json:
        print(json.dumps(found))  # noqa: T201
        return 0
    done = ", ".join(f"{count} {status}" for status, count in found["statuses"].items()) or "none"
    used = found["usage"]
    cost = "" if used["cost"] is None else f", cost {used['cost']:.2f}"
    lines = [
        f"{found['tasks']} tasks, {found['left']} left, {found['running']} running; done: {done}",
        f"{used['inputTokens'] + used['outputTokens']:,} tokens, {used['requests']} requests{cost}",
        *(f"slow: {printable(id)}" for id in found["slowest"]),
        *(f"{count} times: {printable(reason)}" for reason, count in found["reasons"].items()),
    ]
    print("\n".join(lines))  # noqa: T201
    return 0


def _merge(out: Path, sources: Collection[Path]) -> int:
    batches = {source: require_batch(source) for source in sources}
    (first, batch), *_ = batches.items()
    commits = {ref: commit for each in batches.values() for ref, commit in each.commits.items()}
    for place, each in [*batches.items(), (out, read_batch(out) or batch)]:
        if (each.digest, each.doing) != (batch.digest, batch.doing):
            raise InvalidCommandLine(f"{place} is of other tasks, or other settings, than {first}")
    with OutFolder(out, server_home(os.environ)) as folder:
        whole = replace(batch, shard=None, commits=commits)
        folder.begin(whole, _stored_tasks(first), known=all(is_known(each, folder.home) for each in batches))
        left_out = [f"{source}: {why}" for source in batches for why in folder.take_over(source)]
    for why in left_out[:SHOWN_LEFT_OUT]:
        complain("app-server batch merge", printable(f"left out: {why}"))
    if len(left_out) > SHOWN_LEFT_OUT:
        complain("app-server batch merge", f"{len(left_out)} files were left out")
    return _status(out, as_json=False)


DEMO_TASKS: Final = (
    ("repair", "Please repair greet.sh.", ["sh", "check.sh"]),
    ("look", "Run the check.", None),
)


async def _demonstrate(args: argparse.Namespace) -> int:
    """Run ten tasks with a scripted model, in a temporary repository."""
    home = server_home(os.environ)
    try:
        async with workspace.demo_surroundings(os.environ) as demo:
            args.out = args.out or tempfile.mkdtemp(prefix="batch-demo-", dir=temporary_folder(home))
            args.tasks = str(demo.root / "tasks.jsonl")
            lines = [
                {"id": f"{name}-{n}", "prompt": words, "repo": str(demo.repository), "check": check}
                for n in range(1, 6)
                for name, words, check in DEMO_TASKS
            ]
            Path(args.tasks).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
            print(f"ten tasks with a scripted model; look into {args.out}", file=sys.stderr)  # noqa: T201
            return await run_plan(planned(args, demo.environment))
    except workspace.DemoSetupError as error:
        raise InvalidCommandLine(str(error)) from None
    except BaseExceptionGroup as errors:  # the demo model is served by a task group
        first = single_errors(errors)[0]
        raise first if isinstance(first, InvalidCommandLine) else errors from None
