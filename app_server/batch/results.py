"""What came of the tasks: a line for each that is final, appended and synced, and a journal of the attempts, which says
what was spent, also on those that are not.

A batch that is started again reads both: half a line at the end, which a crash leaves, is cut off.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from app_server.batch.messages import Status, TaskOutcome, TaskUsage
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


class StoredStatus(Struct, frozen=True, kw_only=True):
    """The fields of a line of `results.jsonl` that say what is final; quick to read."""

    id: str
    status: Status


class AttemptLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that reached the model, or what one of its requests took."""

    id: str
    attempt: int | None = None
    model: str = ""
    usage: TaskUsage | None = None


class Results:
    """State of these tasks as it is stored: their final lines, and the attempts at them."""

    def __init__(self, folder: Path, ids: Container[str]) -> None:
        """Raises OSError."""
        stored = read_lines(folder / RESULTS, StoredStatus)
        self.final = {each.id: each.status for each in stored if each.id in ids}
        self.statuses = Counter(self.final.values())
        self.attempts: Counter[str] = Counter()
        self.spent: dict[str, TaskUsage] = {}
        """By model, on all tasks in all runs."""
        self.usage: dict[str, dict[str, TaskUsage]] = {}
        """By task and model, for tasks that had no final line."""
        for each in read_lines(folder / JOURNAL, AttemptLine):
            self._take(each)
        self._journal, self._results = (open_to_append(folder / name) for name in (JOURNAL, RESULTS))
        self.notes: list[bytes] = []
        """Lines of the journal that are not written yet."""

    def reached(self, ids: Iterable[str]) -> None:
        """Write down attempts whose first request is to be sent. Raises OSError."""
        for id in ids:
            self._note(AttemptLine(id=id, attempt=self.attempts[id] + 1))
        self.write_notes()

    def took(self, id: str, model: str, usage: TaskUsage) -> None:
        """Note what a request took; it is not written yet."""
        self._note(AttemptLine(id=id, model=model, usage=usage))

    def write_notes(self) -> None:
        """Write what was noted. Raises OSError."""
        if self.notes:
            _append(self._journal, self.notes)
            self.notes = []

    def line(
        self,
        outcome: TaskOutcome,
        patch: str | None,
        node: str,
        meta: Mapping[str, Json] | None,
        prices: Mapping[str, ModelPrice],
    ) -> Result:
        """Return the final line of a task. It costs nothing known where a model of it has no price."""
        usage = self.usage.get(outcome.id, {})
        total: TaskUsage = sum(usage.values(), TaskUsage())
        known = bool(usage) and prices.keys() >= usage.keys()
        cost = sum(prices[model].cost(each) for model, each in usage.items()) if known else None
        return Result(
            **asdict(outcome),
            attempts=self.attempts[outcome.id],
            patch=patch,
            usage=PricedUsage(**asdict(total), cost=cost),
            node=node,
            meta=meta,
        )

    def append(self, results: Sequence[Result]) -> None:
        """Write final lines and sync them. Blocks. Raises OSError; then none of them is there."""
        _append(self._results, [msgspec.json.encode(each) + b"\n" for each in results])
        os.fsync(self._results)
        self.final.update((each.id, each.status) for each in results)
        self.statuses.update(each.status for each in results)

    def close(self) -> None:
        os.close(self._journal)
        os.close(self._results)

    def _note(self, each: AttemptLine) -> None:
        self.notes.append(msgspec.json.encode(each) + b"\n")
        self._take(each)

    def _take(self, each: AttemptLine) -> None:
        if each.attempt is not None:
            self.attempts[each.id] = max(self.attempts[each.id], each.attempt)
        if each.usage is not None:
            _add(self.spent, each.model, each.usage)
            if each.id not in self.final:
                _add(self.usage.setdefault(each.id, {}), each.model, each.usage)


def _add(total: dict[str, TaskUsage], model: str, usage: TaskUsage) -> None:
    total[model] = total[model] + usage if model in total else usage


T = TypeVar("T", StoredStatus, Result, AttemptLine)


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
    content, written = b"".join(lines), 0
    try:
        while written < len(content):
            written += os.write(file, memoryview(content)[written:])
    except OSError:
        os.ftruncate(file, os.fstat(file).st_size - written)
        raise


def summary(final: Collection[Result], tasks: int, running: int) -> Mapping[str, Json]:
    """Return how a batch of so many tasks stands, as `batch status --json` prints it."""
    slowest = sorted(final, key=lambda each: -(each.seconds.setup + each.seconds.turn))
    reasons = Counter(each.error.message[:LONGEST_REASON] for each in final if each.error)
    costs = [each.usage.cost for each in final if each.usage.cost is not None]
    usage: TaskUsage = sum((each.usage for each in final), TaskUsage())
    return {
        "tasks": tasks,
        "left": tasks - len(final),
        "running": running,
        "statuses": dict(Counter(each.status for each in final)),
        "usage": msgspec.to_builtins(PricedUsage(**asdict(usage), cost=sum(costs) if costs else None)),
        "slowest": [each.id for each in slowest[:SHOWN]],
        "reasons": dict(reasons.most_common(SHOWN)),
    }
