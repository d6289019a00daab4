"""Commands for many tasks: `batch`, `batch status`, `batch retry`, `batch merge`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from app_server.commands.options import (
    Subcommand,
    above_zero,
    add_choice,
    add_settings,
    add_turn_settings,
    duration,
    positive,
    serving_itself,
)


def _add_batch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="?", metavar="TASKS.jsonl", help="a task on each line; - for stdin")
    parser.add_argument("-o", "--out", metavar="OUT", help="the folder for results; the same one goes on")
    add_choice(
        parser, "--checkout", "HOW", "how a task gets its folder (worktree)", ("worktree", "copy", "none")
    )
    parser.add_argument("--output-schema", metavar="FILE", help="a JSON Schema for final messages")
    parser.add_argument("--shard", type=_shard, metavar="K/N", help="do every Nth task, from the Kth on")
    parser.add_argument(
        "--allow-changed", action="store_true", help="go on though OUT has other tasks or settings"
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, run nothing")
    parser.add_argument("--demo", action="store_true", help="ten tasks with a scripted model")
    _add_run_arguments(parser)
    add_turn_settings(parser)
    parser.set_defaults(checkout="worktree")


def _add_retry_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="the folder of the batch")
    parser.add_argument(
        "--status", type=_words, default=(), metavar="A,B", help="tasks that ended so (failed,lost)"
    )
    parser.add_argument("--id", type=_words, default=(), metavar="A,B", help="these tasks")
    _add_run_arguments(parser)
    add_settings(parser)


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what may differ from run to run of a batch."""
    limits = parser.add_argument_group("limits of all tasks together")
    limits.add_argument("--jobs", type=positive, metavar="N", help="tasks that run at once")
    limits.add_argument("--tokens-per-minute", type=positive, metavar="N")
    limits.add_argument("--requests-per-minute", type=positive, metavar="N")
    limits.add_argument("--max-tokens", type=positive, metavar="N", help="in all runs")
    limits.add_argument("--max-cost", type=_amount, metavar="EUR", help="in all runs, by --prices")
    limits.add_argument("--prices", metavar="FILE", help="what tokens cost (else prices.json in the home)")
    limits.add_argument("--stop-after", type=positive, metavar="N", help="failures in a row")
    group = parser.add_argument_group("each task")
    group.add_argument(
        "--task-timeout", type=duration, default=1800.0, metavar="TIME", help="seconds, or 90s, 30m, 2h (30m)"
    )
    group.add_argument("--retries", type=_whole, default=2, metavar="N", help="after what may pass (2)")
    add_choice(group, "--keep", "WHICH", "folders to keep (none); all: and events", ("failed", "all", "none"))
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="run on a Ray cluster")
    parser.add_argument("--json", action="store_true", help="print what happens as lines of JSON")
    parser.set_defaults(keep="none", dry_run=False)


def _add_status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="the folder of the batch")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_merge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="OUT", help="the folder for all results")
    parser.add_argument("shards", nargs="+", metavar="FROM", help="the folders of shards")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _whole(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _amount(text: str) -> float:
    return above_zero(text, "an amount above 0", text)


def _shard(text: str) -> str:
    number, _, shards = text.partition("/")
    if not (number.isdecimal() and shards.isdecimal() and 1 <= int(number) <= int(shards)):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, got {text!r}")
    return text


_RUN: Final = serving_itself(lambda: import_module("app_server.batch.batch_command").run_batch)

COMMANDS: Final = (
    Subcommand(
        "batch",
        "run many tasks at once, from a file",
        _add_batch_arguments,
        _RUN,
        "app-server batch --demo   # ten tasks with a scripted model: no key, no network",
        "app-server batch tasks.jsonl -o out --jobs 8   # the same line again goes on",
        "app-server batch tasks.jsonl -o out --dry-run   # check everything, run nothing",
        usage="TASKS.jsonl -o OUT",
    ),
    Subcommand(
        "batch status",
        "say how a batch stands, while it runs and after",
        _add_status_arguments,
        _RUN,
        "app-server batch status out",
        "app-server batch status out --json",
        usage="OUT",
    ),
    Subcommand(
        "batch retry",
        "run tasks of a batch again",
        _add_retry_arguments,
        _RUN,
        "app-server batch retry out   # those that failed",
        "app-server batch retry out --id django-123,django-124   # these",
        usage="OUT",
    ),
    Subcommand(
        "batch merge",
        "bring the results of shards together in one folder",
        _add_merge_arguments,
        _RUN,
        "app-server batch merge out shard-1 shard-2",
        "app-server batch merge out shard-*",
        usage="OUT FROM...",
    ),
)
