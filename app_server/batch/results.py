"""What came of the tasks: a line for each that is final, appended and synced, and a journal of the attempts, which says
what was spent, also on those that are not.

A batch that is started again reads both: half a line at the end, which a crash leaves, is cut off.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from app_server.batch.messages import Result, Status, TaskUsage
from app_server.core.rollout import disk
from protocol.structs import Json, replace

RESULTS, JOURNAL = "results.jsonl", "attempts.jsonl"
SHOWN = 10
"""The slowest tasks, and reasons of failures, that a summary names."""
LONGEST_REASON = 200
PIECE = 1 << 16
DISK = disk.REAL_DISK


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
        """Read them. Raises OSError."""
        self._folder = folder
        self.final = {
            each.id: each.status for each in read_lines(folder / RESULTS, StoredStatus) if each.id in ids
        }
        self.statuses = Counter(self.final.values())
        self.spent: dict[str, TaskUsage] = {}
        """By model, on all tasks in all runs."""
        self.attempts: Counter[str] = Counter()
        self.usage: dict[str, TaskUsage] = {}
        """By task, as the attempts are, for those that had no final line."""
        for each in read_lines(folder / JOURNAL, AttemptLine):
            self._take(each)
        self.notes: list[bytes] = []
        """Lines of the journal that are not written yet."""

    def reached(self, ids: Collection[str]) -> None:
        """Write down attempts whose first request is to be sent. Raises OSError."""
        for id in ids:
            self._note(AttemptLine(id=id, attempt=self.attempts[id] + 1))
        if ids:
            self.write_notes()

    def took(self, id: str, model: str, usage: TaskUsage) -> None:
        """Note what a request took; it is not written yet."""
        self._note(AttemptLine(id=id, model=model, usage=usage))

    def write_notes(self) -> None:
        """Write what was noted. Raises OSError."""
        if self.notes:
            append_lines(self._folder / JOURNAL, self.notes, synced=False)
            self.notes = []

    def complete(self, result: Result, patch: str | None) -> Result:
        """Return the final line of a task: with what all attempts at it took."""
        attempts, usage = self.attempts[result.id], self.usage.get(result.id, TaskUsage())
        return replace(result, attempts=attempts, patch=patch, usage=usage)

    def append(self, results: Sequence[Result]) -> None:
        """Write final lines and sync them. Blocks. Raises OSError; then none of them is there."""
        append_lines(self._folder / RESULTS, [msgspec.json.encode(each) + b"\n" for each in results])
        self.final.update((each.id, each.status) for each in results)
        self.statuses.update(each.status for each in results)

    def _note(self, each: AttemptLine) -> None:
        self.notes.append(msgspec.json.encode(each) + b"\n")
        self._take(each)

    def _take(self, each: AttemptLine) -> None:
        if each.usage is not None:
            _add(self.spent, each.model, each.usage)
        if each.id in self.final:
            return
        if each.usage is not None:
            _add(self.usage, each.id, each.usage)
        if each.attempt is not None:
            self.attempts[each.id] = max(self.attempts[each.id], each.attempt)


def _add(total: dict[str, TaskUsage], key: str, usage: TaskUsage) -> None:
    total[key] = total[key] + usage if key in total else usage


T = TypeVar("T", StoredStatus, Result, AttemptLine)


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the whole lines of a file that is there or not; those that are damaged are left out. Raises OSError."""
    return (each for each, _ in raw_lines(path, kind))


def raw_lines(path: Path, kind: type[T]) -> Iterator[tuple[T, bytes]]:
    """Yield such lines also as they are stored. Raises OSError."""
    decoder = msgspec.json.Decoder(kind)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    with open(file, "rb") as opened:
        for line in opened:
            try:
                each = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if line.endswith(b"\n"):
                yield each, line


def append_lines(path: Path, lines: Sequence[bytes], *, synced: bool = True) -> None:
    """Append lines to a file behind its last whole one; what follows that is cut off. Raises OSError; then none of the
    lines is there.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        end = size = os.fstat(file).st_size
        while end > 0 and os.pread(file, 1, end - 1) != b"\n":
            begin = max(0, end - PIECE)
            end = begin + os.pread(file, end - begin, begin).rfind(b"\n") + 1
        if end != size:
            os.ftruncate(file, end)
        disk.append_lines(file, b"".join(lines), DISK, known_end=end)
        if synced:
            os.fsync(file)
    finally:
        os.close(file)


def summary(folder: Path, ids: Collection[str], running: int) -> Mapping[str, Json]:
    """Return how a batch of these tasks stands, as `batch status --json` prints it. Raises OSError."""
    stored = Results(folder, ids)
    final = [each for each in read_lines(folder / RESULTS, Result) if each.id in stored.final]
    slowest = sorted(final, key=lambda each: -(each.seconds.setup + each.seconds.turn))
    reasons = Counter(each.error.message[:LONGEST_REASON] for each in final if each.error)
    spent = stored.spent.values()
    costs = [each.cost for each in spent if each.cost is not None]
    usage = replace(sum(spent, TaskUsage()), cost=sum(costs) if costs else None)
    return {
        "tasks": len(ids),
        "left": len(ids) - len(final),
        "running": running,
        "statuses": dict(stored.statuses),
        "usage": msgspec.to_builtins(usage),
        "slowest": [each.id for each in slowest[:SHOWN]],
        "reasons": dict(reasons.most_common(SHOWN)),
    }
