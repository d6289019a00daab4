"""Command that plays simulated worlds: `make simulate`, with ARGS for the options below.

Without a seed it plays fresh worlds until it is stopped. Every failure is printed with the commands that show and
shrink it.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from tests.simulation.coverage import reached, situations_table
from tests.simulation.draws import Choices, fresh_seed
from tests.simulation.habits import Habits
from tests.simulation.journal import readable
from tests.simulation.planted_bugs import HEAD, MOST, names, row, searches
from tests.simulation.shrink import kind_of, shrink
from tests.simulation.world import Outcome, play

FOUND = Path(__file__).with_name("found")
PROGRESS_SECONDS = 2.0
SHOWN = 3
"""Maximum number of problems that a run of many worlds prints for one world."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description="Play simulated worlds.")
    parser.add_argument("--seed", type=int, help="play this world and print what happened in it")
    parser.add_argument("--plan", type=Path, help="the same for the choices in a file, as --shrink writes it")
    parser.add_argument(
        "--shrink", action="store_true", help="with one of these: the fewest choices that still fail"
    )
    parser.add_argument("--keep", type=Path, help="with one of these: a folder for the world's files")
    parser.add_argument("--seeds", help="play the worlds A-B and stop")
    parser.add_argument("--count", type=int, help="stop after so many worlds")
    parser.add_argument("--mutant", choices=names(), help="plant this bug and play until a world fails")
    parser.add_argument("--mutants", action="store_true", help="the same for each planted bug: print a table")
    options = parser.parse_args()
    if options.mutant or options.mutants:
        return _planted([options.mutant] if options.mutant else names(), options.seeds, options.count)
    if options.plan is not None:
        plan = json.loads(options.plan.read_text())
        return _one(plan["seed"], plan["choices"], options.keep, shrinks=options.shrink)
    if options.seed is not None:
        return _one(options.seed, None, options.keep, shrinks=options.shrink)
    first, last = _range(options.seeds, options.count)
    return _many(first, last)


def _range(seeds: str | None, count: int | None) -> tuple[int, int | None]:
    if seeds:
        begin, _, end = seeds.partition("-")
        return int(begin), int(end or begin)
    first = fresh_seed()
    return first, None if count is None else first + count - 1


def _planted(bugs: Sequence[str], seeds: str | None, count: int | None) -> int:
    first, last = _range(seeds or "0", None)
    most = count or MOST if seeds is None or last is None else last - first + 1
    print(HEAD)
    found = 0
    for find in searches(bugs, first, most):
        print(row(find), flush=True)
        found += find.seed is not None
    return 0 if found == len(bugs) else 1


def _one(seed: int, choices: Choices | None, keep: Path | None, *, shrinks: bool) -> int:
    outcome = play(seed, choices, keep=keep)
    if shrinks and outcome.problems:
        given, outcome = shrink(seed, outcome, tell=_tell)
        _tell("\n")
        FOUND.mkdir(exist_ok=True)
        name = re.sub(r"\W+", "_", kind_of(outcome.problems[0]))[:50].strip("_")
        path = FOUND / f"{seed}_{name}.json"
        path.write_text(json.dumps({"seed": seed, "choices": given, "problem": outcome.problems[0]}) + "\n")
        print(f"written, and shown below: {path}")
    for line in readable(outcome.journal):
        print(re.sub(r"[^ \"']*/simulation-\d{7}", "", line))
    print("\n" + "\n".join(f"{each.name}: {getattr(outcome.habits, each.name)}" for each in fields(Habits)))
    print(f"\nvirtual seconds {outcome.virtual_seconds:.1f}, digest {outcome.digest}")
    for problem in outcome.problems:
        print(f"PROBLEM {problem}")
    return 1 if outcome.problems else 0


def _many(first: int, last: int | None) -> int:
    begun, virtual, failed = time.monotonic(), 0.0, 0
    seen: Counter[str] = Counter()
    seed, told = first, begun
    try:
        while last is None or seed <= last:
            outcome = play(seed)
            virtual += outcome.virtual_seconds
            seen.update(outcome.situations)
            if outcome.problems:
                failed += 1
                _report(outcome)
            seed += 1
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                _tell(_progress(seed - first, told - begun, virtual, seen, failed))
    except KeyboardInterrupt:
        pass
    _tell("\n")
    print(_progress(seed - first, time.monotonic() - begun, virtual, seen, failed))
    print(situations_table(seen))
    return 1 if failed else 0


def _progress(worlds: int, seconds: float, virtual: float, seen: Counter[str], failed: int) -> str:
    rate = worlds / seconds if seconds else 0.0
    hours = f"{virtual / 3600:.1f} virtual hours"
    return f"{worlds} worlds, {rate:.1f} a second, {hours}, {reached(seen)}, {failed} failed"


def _report(outcome: Outcome) -> None:
    _tell("\n")
    *problems, show, shrinks = outcome.report.splitlines()
    told = [problem[:300] for problem in problems[:SHOWN]]
    print("\n  ".join([f"seed {outcome.seed} fails:", *told, show, shrinks]), flush=True)


def _tell(text: str) -> None:
    print(f"\r{text}   ", end="", flush=True, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
