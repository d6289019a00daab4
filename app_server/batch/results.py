"""What came of the tasks: a line for each that is final, appended and synced, and a journal of the attempts, which says
what was spent, also on those that are not.

A batch that is started again reads both: half a line at the end, which a crash leaves, is cut off.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from app_server.batch.messages import ResultError, Seconds, Status, TaskOutcome, TaskUsage
from app_server.client.prices import ModelPrice
from protocol.structs import Json

RESULTS, JOURNAL = "results.jsonl", "attempts.jsonl"
SHOWN = 10
"""The slowest tasks, and reasons of failures, that a summary names."""
LONGEST_REASON = 200
PIECE = 1 << 16


class PricedUsage(TaskUsage, frozen=True, kw_only=True):
    cost: float | None = None
    """None where a model has no price."""


class Result(TaskOutcome, kw_only=True):
    """A line of `results.jsonl`."""

    attempts: int
    patch: str | None
    usage: PricedUsage
    node: str
    """The machine that it ran on."""
    meta: Mapping[str, Json] | None


class Stored(Struct, frozen=True, kw_only=True):
    """The fields of a line of `results.jsonl` that a batch itself needs; quick to read."""

    id: str
    status: Status
    usage: PricedUsage
    seconds: Seconds
    error: ResultError | None = None


class AttemptLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that reached the model, or what one of its requests took."""

    id: str
    attempt: int | None = None
    model: str = ""
    usage: TaskUsage | None = None


class Journal:
    """The attempts at all tasks, in all runs."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self.attempts: Counter[str] = Counter()
        self.usage: dict[str, dict[str, TaskUsage]] = {}
        """By task and model."""
        for each in read_lines(folder / JOURNAL, AttemptLine):
            self._take(each)
        self._file = open_to_append(folder / JOURNAL)

    def reached(self, id: str) -> None:
        """Note an attempt whose first request is sent. Raises OSError."""
        self._write(AttemptLine(id=id, attempt=self.attempts[id] + 1))

    def spent(self, id: str, model: str, usage: TaskUsage) -> None:
        """Note what a request took. Raises OSError."""
        self._write(AttemptLine(id=id, model=model, usage=usage))

    def by_model(self) -> Mapping[str, TaskUsage]:
        """Return what all tasks took, by model."""
        total: dict[str, TaskUsage] = {}
        for spent in self.usage.values():
            for model, usage in spent.items():
                total[model] = total.get(model, TaskUsage()) + usage
        return total

    def _write(self, each: AttemptLine) -> None:
        _append(self._file, [msgspec.json.encode(each) + b"\n"])
        self._take(each)

    def _take(self, each: AttemptLine) -> None:
        if each.attempt is not None:
            self.attempts[each.id] = max(self.attempts[each.id], each.attempt)
        if each.usage is not None:
            spent = self.usage.setdefault(each.id, {})
            spent[each.model] = spent.get(each.model, TaskUsage()) + each.usage


class Results:
    """The final lines of these tasks: those that are there, and those to come."""

    def __init__(self, folder: Path, ids: Collection[str]) -> None:
        """Raises OSError."""
        self.final = stored_results(folder, ids)
        self._file = open_to_append(folder / RESULTS)

    def append(self, results: Sequence[Result]) -> None:
        """Write lines and sync them. Blocks. Raises OSError; then none of them is there."""
        _append(self._file, [msgspec.json.encode(each) + b"\n" for each in results])
        os.fsync(self._file)
        for each in results:
            fields = {name: getattr(each, name) for name in Stored.__struct_fields__}
            self.final[each.id] = Stored(**fields)


def stored_results(folder: Path, ids: Collection[str]) -> dict[str, Stored]:
    """Return the results of these tasks. Raises OSError."""
    known = frozenset(ids)
    return {each.id: each for each in read_lines(folder / RESULTS, Stored) if each.id in known}


T = TypeVar("T", Stored, AttemptLine)


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the whole lines of a file that is there or not; those that are damaged are left out. Raises OSError."""
    decoder = msgspec.json.Decoder(kind)
    for line in raw_lines(path):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file that is there or not. Raises OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    with open(file, "rb") as opened:
        yield from (line for line in opened if line.endswith(b"\n"))


def append_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Append lines to a file, and sync it. Raises OSError."""
    file = open_to_append(path)
    try:
        _append(file, lines)
        os.fsync(file)
    finally:
        os.close(file)


def open_to_append(path: Path) -> int:
    """Open a file behind its last whole line; what follows that is cut off. Raises OSError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    end = size = os.fstat(file).st_size
    while end > 0 and os.pread(file, 1, end - 1) != b"\n":
        begin = max(0, end - PIECE)
        end = begin + os.pread(file, end - begin, begin).rfind(b"\n") + 1
    if end != size:
        os.ftruncate(file, end)
    return file


def _append(file: int, lines: Sequence[bytes]) -> None:
    """Write all of it, or nothing. Raises OSError."""
    before = os.fstat(file).st_size
    view = memoryview(b"".join(lines))
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, before)
        raise


def priced(usage: Mapping[str, TaskUsage], prices: Mapping[str, ModelPrice]) -> PricedUsage:
    """Return what was used of all models, and what it cost where all of them have a price."""
    total = sum(usage.values(), TaskUsage())
    known = all(model in prices for model in usage)
    cost = sum(prices[model].cost(each) for model, each in usage.items()) if usage and known else None
    return PricedUsage(**asdict(total), cost=cost)


def summary(final: Mapping[str, Stored], tasks: int, running: int) -> Mapping[str, Json]:
    """Return how a batch of so many tasks stands, as `batch status --json` prints it."""
    slowest = sorted(final.values(), key=lambda each: -(each.seconds.setup + each.seconds.turn))
    reasons = Counter(each.error.message[:LONGEST_REASON] for each in final.values() if each.error)
    costs = [each.usage.cost for each in final.values() if each.usage.cost is not None]
    usage: TaskUsage = sum((each.usage for each in final.values()), TaskUsage())
    return {
        "tasks": tasks,
        "left": tasks - len(final),
        "running": running,
        "statuses": dict(Counter(each.status for each in final.values())),
        "usage": msgspec.to_builtins(PricedUsage(**asdict(usage), cost=sum(costs) if costs else None)),
        "slowest": [each.id for each in slowest[:SHOWN]],
        "reasons": dict(reasons.most_common(SHOWN)),
    }
