"""`python -m benchmarks`: selects what is measured, and where the results are written."""

from __future__ import annotations

import argparse
import pstats
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio

from benchmarks import batch, chart, crowd, growth, inspecting, report, shared, soak
from benchmarks.aggregate import parts_table, shares
from benchmarks.commands import COMMAND_BENCHMARKS
from benchmarks.compare import OURS, REFERENCE, REFERENCE_VARIABLE, measure, rows, sides
from benchmarks.disk import DISK_BENCHMARKS
from benchmarks.figures import Unit, written
from benchmarks.machine import said, surroundings
from benchmarks.profiling import SUBJECTS, profile
from benchmarks.report import Table
from benchmarks.turns import TURN_BENCHMARKS

BENCHMARKS = (*TURN_BENCHMARKS, *COMMAND_BENCHMARKS, *DISK_BENCHMARKS)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    about = f"Measure this server; beside the binary that {REFERENCE_VARIABLE} names, where it is set."
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=about)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--growth", action="store_true", help="what more of everything costs")
    what.add_argument("--soak", type=int, nargs="?", const=10_000, metavar="N", help="N turns; what stays")
    what.add_argument("--batch", type=int, nargs="?", const=1000, metavar="N", help="N tasks of a batch")
    what.add_argument("--inspect", action="store_true", help="what the inspector costs a stream")
    what.add_argument("--shared", action="store_true", help="what a client of a shared server waits for")
    what.add_argument("--profile", choices=tuple(SUBJECTS), help="where the time goes")
    parser.add_argument("--only", default="", metavar="WORD", help="benchmarks with this in their name")
    parser.add_argument("--rounds", type=int, metavar="N", help="default 5; 1 of --growth")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the result into this page")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the comparison as SVG")
    return parser.parse_args(argv)


async def main(args: argparse.Namespace) -> None:
    if args.growth:
        await _growth(args)
    elif args.soak:
        await _soak(args)
    elif args.profile:
        await _profile(args)
    elif args.batch:
        found = await batch.table(args.batch, partial(say, "batch"))
        _show(args, "batch", found, said(surroundings(sides().get(REFERENCE))))
    elif args.shared:
        found, note = shared.tables(args.rounds or 5, say)
        _show(args, "crowd", crowd.table(sides()[OURS], args.rounds or 3), said(surroundings(None)))
        _show(args, "shared", found, f"{note} {said(surroundings(sides().get(REFERENCE)))}")
    elif args.inspect:
        await _inspect(args)
    else:
        await _compare(args)


async def _compare(args: argparse.Namespace) -> None:
    both = sides()
    where = surroundings(both.get(REFERENCE))
    chosen = [each for each in BENCHMARKS if args.only in each.name]
    found = rows(await measure(chosen, both, args.rounds or 5, say))
    _show(args, "comparison", report.comparison(found), said(where))
    if args.chart:
        args.chart.write_text(chart.svg(found), encoding="utf-8")


async def _growth(args: argparse.Namespace) -> None:
    both = sides()
    where = surroundings(both.get(REFERENCE))
    for each in growth.GROWTHS:
        if args.only not in each.name:
            continue
        for side, command in both.items():
            points = await growth.grow(each, command, args.rounds or 1, partial(say, side))
            _show(args, f"growth {each.name} {side}", growth.table(each, points), said(where))


async def _soak(args: argparse.Namespace) -> None:
    where = surroundings(None)
    _show(args, "soak", soak.table(await soak.soak(sides()[OURS], args.soak, say)), said(where))


async def _inspect(args: argparse.Namespace) -> None:
    found = await inspecting.table(args.only, args.rounds or 3, partial(say, "inspect"))
    _show(args, "inspect", found, said(surroundings(None)))


async def _profile(args: argparse.Namespace) -> None:
    where = surroundings(None)
    spent = await profile(args.profile)
    times = zip(
        ("in all", "event loop, CPU", "threads, CPU"), (spent.wall, spent.loop, spent.threads), strict=True
    )
    name = f"profile {args.profile}"
    head = ", ".join(f"{title} {written(seconds, Unit.SECONDS)}" for title, seconds in times)
    _show(
        args,
        name,
        parts_table(shares(spent.profiler), spent.loop),
        f"One {args.profile}: {head}. {said(where)}",
    )
    pstats.Stats(spent.profiler).sort_stats("tottime").print_stats(25)


def _show(args: argparse.Namespace, name: str, table: Table, note: str) -> None:
    sys.stdout.write(f"\n{name}\n{note}\n{report.plain(table)}")
    sys.stdout.flush()
    if args.markdown:
        report.insert(args.markdown, name, f"{report.markdown(table)}\n{note}\n")


def say(*words: str) -> None:
    """Print the progress, apart from the results."""
    sys.stderr.write(f"{' '.join(words)}\n")


if __name__ == "__main__":
    anyio.run(main, arguments(sys.argv[1:]))
