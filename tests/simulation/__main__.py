"""Plays simulated worlds: `make simulate`, with ARGS for the options below.

Without a seed it plays worlds until it is stopped, from the number of the day on. Every failure is told with the
commands that show and shrink it.
"""

import argparse
import json
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.coverage import situations_table
from tests.simulation.planted_bugs import HEAD, MOST, names, row, searches
from tests.simulation.shrink import kind_of, shrink
from tests.simulation.world import Outcome, play

DAY = 86_400
FOUND = Path(__file__).with_name("found")
PROGRESS_SECONDS = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description="Play simulated worlds.")
    parser.add_argument("--seed", type=int, help="play this world and print what was said in it")
    parser.add_argument("--seeds", help="play the worlds A-B and stop")
    parser.add_argument(
        "--shrink", action="store_true", help="with --seed: the fewest choices that still fail"
    )
    parser.add_argument("--keep", type=Path, help="with --seed: a folder for the world's files")
    parser.add_argument("--count", type=int, help="stop after so many worlds")
    parser.add_argument("--mutant", choices=names(), help="plant this bug and play until a world fails")
    parser.add_argument("--mutants", action="store_true", help="the same for each planted bug: print a table")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.mutant or options.mutants:
        return _planted([options.mutant] if options.mutant else names(), options.seeds, options.count)
    if options.seed is not None:
        return _one(options.seed, options.keep, shrinks=options.shrink)
    first, last = _range(options.seeds, options.count)
    return _many(first, last)


def _range(seeds: str | None, count: int | None) -> tuple[int, int | None]:
    if seeds:
        begin, _, end = seeds.partition("-")
        return int(begin), int(end or begin)
    first = int(time.time()) // DAY * 1_000_000
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


def _one(seed: int, keep: Path | None, *, shrinks: bool) -> int:
    outcome = play(seed, keep=keep)
    if shrinks and outcome.problems:
        given, outcome = shrink(seed, outcome, tell=_tell)
        print()
        FOUND.mkdir(exist_ok=True)
        name = re.sub(r"\W+", "_", kind_of(outcome.problems[0]))[:50].strip("_")
        path = FOUND / f"{seed}_{name}.json"
        path.write_text(json.dumps({"seed": seed, "choices": given, "problem": outcome.problems[0]}) + "\n")
        print(f"written: {path}")
    for line in outcome.log:
        sent, message = json.loads(line)
        print((">" if sent else "<"), json.dumps(message, ensure_ascii=False))
    print(f"\n{outcome.habits}\n\nvirtual seconds {outcome.virtual_seconds:.1f}, digest {outcome.digest}")
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
                _tell(_progress(seed - first, told - begun, virtual, failed))
    except KeyboardInterrupt:
        pass
    print("\r" + _progress(seed - first, time.monotonic() - begun, virtual, failed))
    print(situations_table(seen))
    return 1 if failed else 0


def _progress(worlds: int, seconds: float, virtual: float, failed: int) -> str:
    rate = worlds / seconds if seconds else 0.0
    return f"{worlds} worlds, {rate:.1f} a second, {virtual / 3600:.1f} virtual hours, {failed} failed"


def _report(outcome: Outcome) -> None:
    print(f"\rseed {outcome.seed} fails:")
    for problem in outcome.problems[:3]:
        print(f"  {problem[:300]}")
    print(f"  make simulate ARGS='--seed {outcome.seed}'")
    print(f"  make simulate ARGS='--seed {outcome.seed} --shrink'")


def _tell(text: str) -> None:
    print(f"\r{text}   ", end="", flush=True, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
