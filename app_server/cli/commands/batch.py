"""`app-server batch`, `batch status`, `batch retry` and `batch merge`: run many tasks."""

from __future__ import annotations

import argparse

from app_server.cli.arguments import (
    above_zero,
    add_choice,
    add_flag,
    add_json,
    add_settings,
    add_turn_settings,
    duration,
    positive,
    prepare_own_server,
)
from app_server.cli.batch import batch_command
from app_server.cli.command_parser import CommandParser


def add_arguments(parser: CommandParser) -> None:
    parser.arguments = "TASKS.jsonl -o OUT"
    parser.examples = (
        "app-server batch --demo   # ten tasks with a scripted model: no key, no network",
        "app-server batch tasks.jsonl -o out --jobs 8   # the same line again goes on",
        "app-server batch tasks.jsonl -o out --dry-run   # check everything, run nothing",
    )
    parser.add_argument("tasks", nargs="?", metavar="TASKS.jsonl", help="a task on each line; - for stdin")
    parser.add_argument("-o", "--out", metavar="OUT", help="the folder for results; the same one goes on")
    add_choice(
        parser,
        "--checkout",
        metavar="HOW",
        help="how a task gets its folder (worktree)",
        words=("worktree", "copy", "none"),
    )
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON Schema for final messages")
    parser.add_argument("--shard", type=_shard, metavar="K/N", help="do every Nth task, from the Kth on")
    add_flag(parser, "--allow-changed", help="go on though OUT has other tasks or settings")
    add_flag(parser, "--dry-run", help="check everything, run nothing")
    add_flag(parser, "--demo", help="ten tasks with a scripted model")
    _add_run_options(parser)
    add_turn_settings(parser)
    parser.set_defaults(checkout="worktree")

    status = parser.add_command("status", "say how a batch stands, while it runs and after")
    status.examples = ("app-server batch status out", "app-server batch status out --json")
    _add_folder(status)
    add_json(status)

    _add_retry(parser.add_command("retry", "run tasks of a batch again"))

    merge = parser.add_command("merge", "bring the results of shards together in one folder")
    merge.arguments = "OUT FROM..."
    merge.examples = ("app-server batch merge out shard-1 shard-2", "app-server batch merge out shard-*")
    merge.add_argument("out", metavar="OUT", help="the folder for all results")
    merge.add_argument("shards", nargs="+", metavar="FROM", help="the folders of shards")


def _add_retry(parser: CommandParser) -> None:
    parser.examples = (
        "app-server batch retry out   # those that failed",
        "app-server batch retry out --id django-123,django-124   # these",
    )
    _add_folder(parser)
    parser.add_argument(
        "--status", type=_words, default=(), metavar="A,B", help="tasks that ended so (failed,lost)"
    )
    parser.add_argument("--id", type=_words, default=(), metavar="A,B", help="these tasks")
    _add_run_options(parser)
    add_settings(parser)


def _add_folder(parser: CommandParser) -> None:
    parser.arguments = "OUT"
    parser.add_argument("out", metavar="OUT", help="the folder of the batch")


def _add_run_options(parser: CommandParser) -> None:
    """Add the options that may differ between runs of a batch."""
    limits = parser.add_argument_group("limits of all tasks together")
    limits.add_argument("--jobs", type=positive, metavar="N", help="tasks that run at once")
    limits.add_argument("--tokens-per-minute", type=positive, metavar="N")
    limits.add_argument("--requests-per-minute", type=positive, metavar="N")
    limits.add_argument("--max-tokens", type=positive, metavar="N", help="in all runs")
    limits.add_argument(
        "--max-cost", type=_amount, metavar="AMOUNT", help="in all runs, in the currency of --prices"
    )
    limits.add_argument("--prices", metavar="FILE", help="what tokens cost (else prices.json in the home)")
    limits.add_argument("--stop-after", type=positive, metavar="N", help="failures in a row")
    task = parser.add_argument_group("each task")
    task.add_argument(
        "--task-timeout",
        type=duration,
        default=1800.0,
        metavar="TIME",
        help="seconds, or 90s, 30m, 2h (30m)",
    )
    task.add_argument("--retries", type=_whole, default=2, metavar="N", help="after what may pass (2)")
    add_choice(
        task,
        "--keep",
        metavar="WHICH",
        help="folders to keep (none); all: and events",
        words=("failed", "all", "none"),
    )
    parser.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS", help="run on a Ray cluster (--ray=ADDRESS)"
    )
    add_flag(parser, "--json", help="print what happens as lines of JSON")
    parser.set_defaults(keep="none", dry_run=False)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _whole(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _amount(text: str) -> float:
    return above_zero(text, "an amount above 0", text)


def _shard(text: str) -> str:
    number, _, shards = text.partition("/")
    try:
        if positive(number) <= positive(shards):
            return text
    except argparse.ArgumentTypeError:
        pass
    raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, got {text[:40]!r}")


def run(args: argparse.Namespace) -> int:
    prepare_own_server()
    return batch_command.run_batch(args)
