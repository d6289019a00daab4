"""Each benchmark is run for some rounds on each side. The sides alternate, so that other load of the machine hits both.

The result is the median of the rounds' ratios ours / reference.
"""

from __future__ import annotations

import math
import os
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Benchmark, Run
from benchmarks.figures import FIGURES, Figure
from benchmarks.model import PreparedModel
from benchmarks.place import temporary_place

OURS = "ours"
REFERENCE = "reference"
REFERENCE_VARIABLE = "REFERENCE_CODEX"

Say = Callable[[str], None]
Sides = Mapping[str, Sequence[str]]
Samples = dict[str, dict[str, list[float]]]
"""Values by figure, then by side: one for each round."""


def sides() -> Sides:
    """Return the commands to measure. The reference is a binary, or a whole command if the variable has several
    words.
    """
    script = Path(sys.executable).with_name("app-server")
    ours = (str(script),) if script.exists() else (sys.executable, "-P", "-m", "app_server", "app-server")
    named = shlex.split(os.environ.get(REFERENCE_VARIABLE, ""))
    if not named:
        return {OURS: ours}
    return {OURS: ours, REFERENCE: (*named, "app-server") if len(named) == 1 else named}


async def once(benchmark: Benchmark, command: Sequence[str]) -> Mapping[str, float]:
    model = PreparedModel()
    with temporary_place() as place:
        async with model.serving() as url:
            return await benchmark.run(Run(command, place, model, url))


async def measure(benchmarks: Sequence[Benchmark], sides: Sides, rounds: int, say: Say) -> Samples:
    samples: Samples = {}
    for benchmark in benchmarks:
        for round in range(rounds):
            order = list(sides)[:: 1 if round % 2 == 0 else -1]
            for side in order:
                try:
                    measured = await once(benchmark, sides[side])
                except Exception as error:
                    say(f"{benchmark.name}: {side}: {_innermost(error)!r}")
                    continue
                for name, value in measured.items():
                    samples.setdefault(name, {}).setdefault(side, []).append(value)
        say(f"{benchmark.name}: done")
    return samples


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the table; NAN if a side was not measured."""

    figure: Figure
    ours: float
    reference: float
    ratio: float
    spread: tuple[float, float]
    """Smallest and largest ratio of a round."""


def rows(samples: Samples) -> list[Row]:
    return [_row(figure, samples[figure.name]) for figure in FIGURES if figure.name in samples]


def _row(figure: Figure, by_side: Mapping[str, Sequence[float]]) -> Row:
    ours, reference = by_side.get(OURS, ()), by_side.get(REFERENCE, ())
    ratios = [a / b for a, b in zip(ours, reference, strict=False) if b]
    spread = (min(ratios), max(ratios)) if ratios else (math.nan, math.nan)
    return Row(figure, _median(ours), _median(reference), _median(ratios), spread)


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
