"""Runs the growth benchmarks and makes tables of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.bench import Benchmark, Run
from benchmarks.compare import Say, once
from benchmarks.figures import Unit, written
from benchmarks.growth import Growth, Point
from benchmarks.report import Table


async def grow(growth: Growth, command: Sequence[str], rounds: int, say: Say) -> list[Point]:
    points = []
    for size in growth.sizes:
        measured: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, value in (await _at(growth, size, command)).items():
                measured.setdefault(name, []).append(value)
        points.append(Point(size, {name: statistics.median(each) for name, each in measured.items()}))
        say(f"{growth.name}: {size}: done")
    return points


async def _at(growth: Growth, size: int, command: Sequence[str]) -> Mapping[str, float]:
    async def run(run: Run) -> Mapping[str, float]:
        return await growth.at(run, size)

    return await once(Benchmark(growth.name, run), command)


def table(growth: Growth, points: Sequence[Point]) -> Table:
    """A row for each size; in parentheses what each one more has cost since the size before."""
    names = list(points[0].values)
    rows = [(f"{growth.of}s", *names)]
    for n, point in enumerate(points):
        before = points[n - 1] if n else None
        cells = [_cell(growth, name, point, before) for name in names]
        rows.append((f"{point.size:,}", *cells))
    return rows


def _cell(growth: Growth, name: str, point: Point, before: Point | None) -> str:
    unit = Unit.MEBIBYTES if name in growth.memory else Unit.SECONDS
    value = written(point.values[name], unit)
    if before is None:
        return value
    each = (point.values[name] - before.values[name]) / (point.size - before.size)
    return f"{value} ({_marginal(each, unit)})"


def _marginal(each: float, unit: Unit) -> str:
    if unit is Unit.MEBIBYTES:
        return f"{each * 1024:+.1f} KiB"
    return f"{each * 1e6:+.1f} µs"
