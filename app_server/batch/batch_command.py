"""`app-server batch`: runs the tasks of a file, says how a batch stands, runs some of it again, joins shards."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import anyio

from app_server.batch.batch_run import BatchPlan, of_shard, run_plan
from app_server.batch.coordinator import STOPPED
from app_server.batch.messages import Doing, Status
from app_server.batch.out_folder import TASKS, BatchFile, OutFolder, read_batch, require_batch, shown_running
from app_server.batch.results import RESULTS, StoredStatus, read_lines, summary
from app_server.batch.secrets import without_secrets
from app_server.batch.tasks import parse_tasks
from app_server.client.command_line import USAGE, InvalidCommandLine, printable
from app_server.core.config.types import CliOverrides
from app_server.core.errors import ConfigError
from app_server.core.lazy import Lazy
from app_server.masking import MASK
from app_server.standard_streams import complain
from app_server.startup.launch import parse_launch, parse_setting, server_home, working_directory
from app_server.startup.overrides import cli_overrides
from protocol.structs import Json, replace

if TYPE_CHECKING:
    from app_server.headless.output_schema import OutputSchema

AGAIN: Final[tuple[Status, ...]] = ("failed", "lost")
"""What `retry` runs again, where nothing is named."""
FROM_STDIN: Final = "-"

_OUTPUT_SCHEMA: Lazy[type[OutputSchema]] = Lazy(
    lambda: import_module("app_server.headless.output_schema").OutputSchema
)
_DEMO: Lazy[Any] = Lazy(lambda: import_module("app_server.demo.workspace"))


def run_batch(args: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    try:
        match args.command:
            case "batch status":
                return _status(Path(args.folder), as_json=args.json)
            case "batch merge":
                return _merge(Path(args.folder), list(map(Path, args.shards)))
            case "batch retry":
                return anyio.run(run_plan, _retried(args))
            case _ if args.demo:
                return anyio.run(_demonstrate, args)
            case _:
                return anyio.run(run_plan, _planned(args, os.environ))
    except (InvalidCommandLine, ConfigError) as error:
        complain(f"app-server {args.command}", printable(str(error)))
        return USAGE
    except OSError as error:
        complain(f"app-server {args.command}", printable(f"a folder cannot be used any more: {error}"))
        return STOPPED


def _planned(args: argparse.Namespace, environment: Mapping[str, str]) -> BatchPlan:
    if args.tasks is None or args.out is None:
        raise InvalidCommandLine("expected a file of tasks and a folder for results: TASKS.jsonl -o OUT")
    out, raw = Path(args.out), _raw(args.tasks)
    schema = (
        None if args.output_schema is None else _OUTPUT_SCHEMA.get().read(Path(args.output_schema)).schema
    )
    doing = Doing(overrides=_overrides(vars(args)), checkout=args.checkout, schema=schema)
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
        batch = replace(before, doing=doing)
    source = "stdin" if args.tasks == FROM_STDIN else args.tasks
    return BatchPlan(args=args, out=out, raw=raw, source=source, batch=batch, environment=environment)


def _overrides(given: Mapping[str, Any]) -> CliOverrides:
    """Return what the command line sets. Nobody is there to be asked, so the policy is `never` if it says nothing."""
    named = any(parse_setting(each)[0] == "approval_policy" for each in given.get("config", ()))
    policy = {} if named or "ask_for_approval" in given else {"ask_for_approval": "never"}
    try:
        return cli_overrides(parse_launch({**given, **policy}, os.environ))
    except ValueError as error:  # a limit in the environment
        raise InvalidCommandLine(str(error)) from None


def _raw(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == FROM_STDIN else Path(source).read_bytes()
    except OSError as error:
        raise InvalidCommandLine(f"{source}: {error.strerror or error}") from None


def _retried(args: argparse.Namespace) -> BatchPlan:
    """Plan to run tasks of a batch again, with the settings that it was begun with."""
    out = Path(args.folder)
    before = require_batch(out)
    statuses, ids = args.status, args.id
    if wrong := [word for word in statuses if word not in get_args(Status)]:
        raise InvalidCommandLine(
            f"--status: expected some of {', '.join(get_args(Status))}, got {wrong[0]!r}"
        )
    final = {each.id: each.status for each in read_lines(out / RESULTS, StoredStatus)}
    if unknown := [id for id in ids if id not in final]:
        raise InvalidCommandLine(f"--id: the task {unknown[0]!r} has no result in {out}")
    wanted = statuses or (get_args(Status) if ids else AGAIN)
    again = frozenset(id for id, status in final.items() if status in wanted and (not ids or id in ids))
    batch = replace(before, doing=_with_secrets(before.doing, dict(_overrides(vars(args)).settings)))
    source = str(out / TASKS)
    return BatchPlan(
        args=args,
        out=out,
        raw=_raw(source),
        source=source,
        batch=batch,
        environment=os.environ,
        again=again,
    )


def _with_secrets(stored: Doing, given: Mapping[str, str]) -> Doing:
    """Return what a batch does with the settings that are not stored, which are given again."""
    settings = stored.overrides.settings
    if missing := [key for key, value in settings if MASK in value and key not in given]:
        raise InvalidCommandLine(
            f"the setting {missing[0]} is a secret, and not stored: give -c {missing[0]}=… again"
        )
    whole = tuple((key, given[key] if MASK in value else value) for key, value in settings)
    return replace(stored, overrides=replace(stored.overrides, settings=whole))


# --- looking, joining, showing
def _status(out: Path, *, as_json: bool) -> int:
    shard = require_batch(out).shard
    tasks, _ = parse_tasks(_raw(str(out / TASKS)), "worktree", {})
    mine = {task.id for _, task in of_shard(tasks, shard)}
    found: Mapping[str, Json] = summary(out, mine, len(shown_running(out)))
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
    before = read_batch(out)
    for place, each in [*batches.items(), (out, before or batch)]:
        if (each.digest, each.doing) != (batch.digest, batch.doing):
            raise InvalidCommandLine(f"{place} is of other tasks, or other settings, than {first}")
    with OutFolder(out, server_home(os.environ)) as folder:
        folder.begin(replace(batch, shard=None, commits=commits), _raw(str(first / TASKS)))
        for source in batches:
            folder.take_over(source)
    return _status(out, as_json=False)


DEMO_TASKS: Final = (
    ("repair", "Please repair greet.sh.", ["sh", "check.sh"]),
    ("look", "Run the check.", None),
)


async def _demonstrate(args: argparse.Namespace) -> int:
    """Run ten tasks with a scripted model, in a repository of its own."""
    demo = _DEMO.get()
    try:
        async with demo.demo_surroundings(os.environ) as workspace:
            args.out = args.out or tempfile.mkdtemp(prefix="app-server-batch-demo-")
            args.tasks = str(workspace.root / "tasks.jsonl")
            lines = [
                {"id": f"{name}-{n}", "prompt": words, "repo": str(workspace.repository), "check": check}
                for n in range(1, 6)
                for name, words, check in DEMO_TASKS
            ]
            Path(args.tasks).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
            print(f"ten tasks with a scripted model; look into {args.out}", file=sys.stderr)  # noqa: T201
            return await run_plan(_planned(args, workspace.environment))
    except demo.DemoSetupError as error:
        raise InvalidCommandLine(str(error)) from None
