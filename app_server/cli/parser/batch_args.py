"""Commands for many tasks: `batch`, `batch status`, `batch retry`, `batch merge`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from app_server.cli.parser.arguments import (
    JSON,
    SETTINGS,
    TURN_SETTINGS,
    Subcommand,
    above_zero,
    choice,
    defaults,
    duration,
    flag,
    group,
    option,
    positive,
    serving_itself,
)


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


_RUN: Final = serving_itself(lambda: import_module("app_server.cli.batch.batch_command").run_batch)

RUN: Final = (
    group(
        "limits of all tasks together",
        option("--jobs", type=positive, metavar="N", help="tasks that run at once"),
        option("--tokens-per-minute", type=positive, metavar="N"),
        option("--requests-per-minute", type=positive, metavar="N"),
        option("--max-tokens", type=positive, metavar="N", help="in all runs"),
        option("--max-cost", type=_amount, metavar="AMOUNT", help="in all runs, in the currency of --prices"),
        option("--prices", metavar="FILE", help="what tokens cost (else prices.json in the home)"),
        option("--stop-after", type=positive, metavar="N", help="failures in a row"),
    ),
    group(
        "each task",
        option(
            "--task-timeout",
            type=duration,
            default=1800.0,
            metavar="TIME",
            help="seconds, or 90s, 30m, 2h (30m)",
        ),
        option("--retries", type=_whole, default=2, metavar="N", help="after what may pass (2)"),
        choice("--keep", "WHICH", "folders to keep (none); all: and events", ("failed", "all", "none")),
    ),
    option("--ray", nargs="?", const="", metavar="ADDRESS", help="run on a Ray cluster (--ray=ADDRESS)"),
    flag("--json", "print what happens as lines of JSON"),
    defaults(keep="none", dry_run=False),
)
"""Options that may differ between runs of a batch."""

FOLDER: Final = option("out", metavar="OUT", help="the folder of the batch")

COMMANDS: Final = (
    Subcommand(
        "batch",
        "run many tasks at once, from a file",
        [
            option("tasks", nargs="?", metavar="TASKS.jsonl", help="a task on each line; - for stdin"),
            option("-o", "--out", metavar="OUT", help="the folder for results; the same one goes on"),
            choice(
                "--checkout", "HOW", "how a task gets its folder (worktree)", ("worktree", "copy", "none")
            ),
            option("--output-schema", metavar="FILE", help="a JSON Schema for final messages"),
            option("--shard", type=_shard, metavar="K/N", help="do every Nth task, from the Kth on"),
            flag("--allow-changed", "go on though OUT has other tasks or settings"),
            flag("--dry-run", "check everything, run nothing"),
            flag("--demo", "ten tasks with a scripted model"),
            *RUN,
            *TURN_SETTINGS,
            defaults(checkout="worktree"),
        ],
        _RUN,
        "app-server batch --demo   # ten tasks with a scripted model: no key, no network",
        "app-server batch tasks.jsonl -o out --jobs 8   # the same line again goes on",
        "app-server batch tasks.jsonl -o out --dry-run   # check everything, run nothing",
        usage="TASKS.jsonl -o OUT",
    ),
    Subcommand(
        "batch status",
        "say how a batch stands, while it runs and after",
        [FOLDER, JSON],
        _RUN,
        "app-server batch status out",
        "app-server batch status out --json",
        usage="OUT",
    ),
    Subcommand(
        "batch retry",
        "run tasks of a batch again",
        [
            FOLDER,
            option(
                "--status", type=_words, default=(), metavar="A,B", help="tasks that ended so (failed,lost)"
            ),
            option("--id", type=_words, default=(), metavar="A,B", help="these tasks"),
            *RUN,
            SETTINGS,
        ],
        _RUN,
        "app-server batch retry out   # those that failed",
        "app-server batch retry out --id django-123,django-124   # these",
        usage="OUT",
    ),
    Subcommand(
        "batch merge",
        "bring the results of shards together in one folder",
        [
            option("out", metavar="OUT", help="the folder for all results"),
            option("shards", nargs="+", metavar="FROM", help="the folders of shards"),
        ],
        _RUN,
        "app-server batch merge out shard-1 shard-2",
        "app-server batch merge out shard-*",
        usage="OUT FROM...",
    ),
)
