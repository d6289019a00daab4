"""The folder of a batch: what it does, its lock, a line for each task that is final, a journal of the attempts, and the
files that come back from tasks; what `retry` and `merge` do to it.

A final line is appended and synced when its files are there. The journal says what was spent, also on tasks that have
no result. A batch that is started again reads both: half a line at the end, which a crash leaves, is cut off. No file
has secrets. The lock is the coordinator's alone, and whoever asks how a batch stands reads in it how many tasks run.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from app_server.batch.messages import HOMES, Doing, Ended, Result, Status, TaskUsage
from app_server.batch.secrets import without_secrets
from app_server.batch.tasks import file_name
from app_server.client.command_line import InvalidCommandLine
from app_server.core.config.safe_file import STAGED, write_file_atomically
from app_server.core.rollout import disk
from app_server.core.rollout.rollout_names import OTHER_HOMES
from app_server.places.locks import LockHeld, hold, is_held
from app_server_protocol.structs import Json, replace

BATCH, TASKS, LOCK, RETRIED = "batch.json", "tasks.jsonl", "lock", "retried.jsonl"
RESULTS, JOURNAL, PATCHES, EVENTS = "results.jsonl", "attempts.jsonl", "patches", "events"
LOCKED_WITHIN: Final = 1.0
"""Seconds in which a lock may be held by who only looks."""
SHOWN = 10
"""The slowest tasks, and reasons of failures, that a summary names."""
LONGEST_REASON = 200
NOTHING: Final = TaskUsage(cost=0.0)
DISK = disk.REAL_DISK


class BatchFile(Struct, frozen=True, kw_only=True):
    """`batch.json`. There the values of secrets are masked."""

    digest: str
    """SHA-256 of the tasks as they were read."""
    folder: str
    """What the paths of tasks are relative to."""
    doing: Doing
    shard: str | None = None
    commits: Mapping[str, str] = {}
    """What the refs of repositories were when their tasks were first read."""


class StoredStatus(Struct, frozen=True, kw_only=True):
    """The fields of a line of `results.jsonl` that say what is final; quick to read."""

    id: str
    status: Status


class AttemptLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Without usage an attempt that reached the model, else what one of its requests took."""

    id: str
    model: str = ""
    usage: TaskUsage | None = None


def read_batch(out: Path) -> BatchFile | None:
    """Return what the folder is for; None where there is none, or nothing in it. Raises InvalidCommandLine."""
    try:
        names = os.listdir(out)
        if BATCH in names:
            return msgspec.json.decode((out / BATCH).read_bytes(), type=BatchFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidCommandLine(f"{out}: {getattr(error, 'strerror', None) or error}") from None
    if any(name != LOCK and STAGED not in name for name in names):
        raise InvalidCommandLine(f"{out} has files in it, and is of no batch: expected a new folder")
    return None


def require_batch(out: Path) -> BatchFile:
    """Raises InvalidCommandLine where the folder is not of a batch."""
    if (found := read_batch(out)) is None:
        raise InvalidCommandLine(f"{out} is of no batch: expected a folder that -o named")
    return found


class OutFolder:
    """The folder while a coordinator works in it. A context manager."""

    def __init__(self, out: Path, home: Path) -> None:
        """Make the folder where it is missing, and lock it. `home` is the user's. Raises InvalidCommandLine."""
        self._home = home
        try:
            out.mkdir(parents=True, exist_ok=True)
            self.path = Path(os.path.realpath(out))
            self._lock = hold(str(self.path / LOCK), LOCKED_WITHIN)
        except OSError as error:
            raise InvalidCommandLine(f"{out} cannot be written: {error.strerror}") from None
        except LockHeld:
            raise InvalidCommandLine(f"{out} is in use: another batch runs on it") from None

    def __enter__(self) -> OutFolder:
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self._lock)

    def begin(self, batch: BatchFile, tasks: bytes, again: Collection[str] = ()) -> None:
        """Store what the batch does, and put aside the results of tasks that run `again`. Raises InvalidCommandLine."""
        stored = msgspec.json.encode(replace(batch, doing=without_secrets(batch.doing)))
        try:
            self._replace(
                BATCH, msgspec.json.format(stored, indent=2)
            )  # first: it makes the folder a batch's
            self._replace(TASKS, tasks)
            for name in (PATCHES, EVENTS, HOMES):
                (self.path / name).mkdir(exist_ok=True)
            if again:
                lines = _lines_by_id(self.path)
                append_lines(self.path / RETRIED, [line for id, line in lines.items() if id in again])
                self._replace(RESULTS, b"".join(line for id, line in lines.items() if id not in again))
        except OSError as error:
            raise InvalidCommandLine(f"{self.path} cannot be written: {error.strerror or error}") from None

    def _replace(self, name: str, content: bytes) -> None:
        write_file_atomically(self.path / name, content, 0o600)

    def write_files(self, ended: Ended, *, final: bool) -> None:
        """Write and sync what belongs to an attempt, and to a result if it is one: then that names its patch. Threads
        come with attempts that were made in a home which is not in this folder. Raises OSError.
        """
        result, name = ended.result, file_name(ended.result.id)
        if ended.rollout is not None:
            self._write(f"{HOMES}/{result.node}/{ended.rollout[0]}", ended.rollout[1])
        if final and ended.patch:
            result.patch = f"{PATCHES}/{name}.diff"
            self._write(result.patch, ended.patch)
        if final and ended.events:
            self._write(f"{EVENTS}/{name}.jsonl", ended.events)

    def _write(self, name: str, content: bytes) -> None:
        """Write a file that counts only once there is a final line of its task; makes missing folders."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def show_running(self, running: int) -> None:
        """Say how many tasks run, for who asks how the batch stands."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, os.pwrite(self._lock, b"%9d" % running, 0))

    def link_threads(self, node: str) -> None:
        """Let the user's home find the threads of a machine by their ids. Where that fails, nothing else does."""
        links, home = self._home / OTHER_HOMES, self.path / HOMES / node
        link = links / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
        with contextlib.suppress(OSError):
            home.mkdir(exist_ok=True)
            links.mkdir(exist_ok=True)
            for each in links.iterdir():
                if not each.exists():
                    each.unlink()  # its batch is gone
            link.symlink_to(home)

    def take_over(self, shard: Path) -> None:
        """Add the results of another folder, with what belongs to them. Raises InvalidCommandLine and OSError."""
        have, lines = _lines_by_id(self.path), _lines_by_id(shard)
        for id, line in lines.items():
            if have.get(id, line) != line:
                raise InvalidCommandLine(f"{shard}: the task {id!r} has another result already")
        for name in (PATCHES, EVENTS, HOMES):
            shutil.copytree(shard / name, self.path / name, symlinks=True, dirs_exist_ok=True)
        its, ours = (
            Counter(line for _, line in read_lines(each / JOURNAL, AttemptLine))
            for each in (shard, self.path)
        )
        append_lines(self.path / JOURNAL, list((its - ours).elements()))
        append_lines(self.path / RESULTS, [line for id, line in lines.items() if id not in have])


class Results:
    """State of these tasks as it is stored: their final lines, and the attempts at them."""

    def __init__(self, folder: Path, ids: Container[str]) -> None:
        """Read them. Raises OSError."""
        self._folder = folder
        self.final = {id: status for id, status in final_statuses(folder).items() if id in ids}
        self.statuses = Counter(self.final.values())
        self.spent: dict[str, TaskUsage] = {}
        """By model, on all tasks in all runs."""
        self.attempts: Counter[str] = Counter()
        self.usage: dict[str, TaskUsage] = {}
        """By task, as the attempts are, for those that had no final line."""
        for each, _ in read_lines(folder / JOURNAL, AttemptLine):
            self._take(each)
        self.notes: list[bytes] = []
        """Lines of the journal that are not written yet."""

    def reached(self, ids: Collection[str]) -> None:
        """Write down attempts whose first request is to be sent. Raises OSError."""
        for id in ids:
            self._note(AttemptLine(id=id))
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

    def append(self, results: Sequence[Result]) -> None:
        """Write final lines, with what all attempts at each task took, and sync them. Blocks. Raises OSError; then none
        of them is there.
        """
        for each in results:
            each.attempts, each.usage = self.attempts[each.id], self.usage.get(each.id, TaskUsage())
        append_lines(self._folder / RESULTS, [msgspec.json.encode(each) + b"\n" for each in results])
        self.final.update((each.id, each.status) for each in results)
        self.statuses.update(each.status for each in results)

    def _note(self, each: AttemptLine) -> None:
        self.notes.append(msgspec.json.encode(each) + b"\n")
        self._take(each)

    def _take(self, each: AttemptLine) -> None:
        if each.usage is not None:
            self.spent[each.model] = self.spent.get(each.model, NOTHING) + each.usage
        if each.id in self.final:
            return
        if each.usage is None:
            self.attempts[each.id] += 1
        else:
            self.usage[each.id] = self.usage.get(each.id, NOTHING) + each.usage


T = TypeVar("T", StoredStatus, Result, AttemptLine)


def read_lines(path: Path, kind: type[T]) -> Iterator[tuple[T, bytes]]:
    """Yield the whole lines of a file that is there or not, each with how it is stored; those that are damaged are left
    out. Raises OSError.
    """
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


def final_statuses(out: Path) -> Mapping[str, Status]:
    """Return how tasks ended, by their ids. Raises OSError."""
    return {each.id: each.status for each, _ in read_lines(out / RESULTS, StoredStatus)}


def _lines_by_id(out: Path) -> Mapping[str, bytes]:
    return {each.id: line for each, line in read_lines(out / RESULTS, StoredStatus)}


def append_lines(path: Path, lines: Sequence[bytes], *, synced: bool = True) -> None:
    """Append lines to a file behind its last whole one; what follows that is cut off. Raises OSError; then none of the
    lines is there.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        end = os.fstat(file).st_size
        if end and os.pread(file, 1, end - 1) != b"\n":
            with mmap.mmap(file, 0, prot=mmap.PROT_READ) as content:
                end = content.rfind(b"\n") + 1
            os.ftruncate(file, end)
        disk.append_lines(file, b"".join(lines), DISK, known_end=end)
        if synced:
            os.fsync(file)
    finally:
        os.close(file)


def summary(out: Path, ids: Collection[str]) -> Mapping[str, Json]:
    """Return how a batch of these tasks stands, as `batch status --json` prints it. Raises OSError."""
    stored = Results(out, ids)
    final = [each for each, _ in read_lines(out / RESULTS, Result) if each.id in stored.final]
    slowest = sorted(final, key=lambda each: -(each.seconds.setup + each.seconds.turn))
    reasons = Counter(each.error.message[:LONGEST_REASON] for each in final if each.error)
    costs = [each.cost for each in stored.spent.values() if each.cost is not None]
    usage = replace(sum(stored.spent.values(), TaskUsage()), cost=sum(costs) if costs else None)
    running = (out / LOCK).read_bytes() if is_held(str(out / LOCK)) else b""
    return {
        "tasks": len(ids),
        "left": len(ids) - len(final),
        "running": int(running or 0),
        "statuses": dict(stored.statuses),
        "usage": msgspec.to_builtins(usage),
        "slowest": [each.id for each in slowest[:SHOWN]],
        "reasons": dict(reasons.most_common(SHOWN)),
    }
