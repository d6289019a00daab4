"""The folder of a batch, and the work of `retry` and `merge` on it.

It contains a description of the batch, its lock, a line for each task with a final result, a journal of the attempts,
and the files of tasks. A final line is appended and synced after its files are written. The journal records usage,
including that of tasks without a result. A batch that is started again reads both: an incomplete line at the end, which
a crash leaves, is cut off. No file contains secrets. Only the coordinator holds the lock. A command that shows the
state of a batch reads the number of running tasks from it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import mmap
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from app_server.cli.batch.batch_tasks import file_name
from app_server.cli.batch.secrets import without_secrets
from app_server.cli.batch.worker_messages import HOMES, Doing, Ended, Result, Status, TaskUsage
from app_server.client.command_line import InvalidCommandLine
from app_server.engine.config.safe_file import STAGED, sync_folder, write_file_atomically
from app_server.engine.storage import batch_folders, disk
from app_server.engine.storage.rollout_names import OTHER_HOMES
from app_server.engine.support.filelock import LockHeld, hold
from app_server.engine.support.rooted_fs import RefusedName, RootDir
from app_server_protocol.values import replace

BATCH, TASKS, LOCK, RETRIED = "batch.json", "tasks.jsonl", "lock", "retried.jsonl"
RESULTS, JOURNAL, PATCHES, EVENTS = "results.jsonl", "attempts.jsonl", "patches", "events"
LOCKED_WITHIN: Final = 1.0
"""Time for which a process that only reads may hold a lock, in seconds."""
LARGEST_FILE: Final = 1 << 31
APPENDING = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WHOLE_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
NOTHING: Final = TaskUsage(cost=0.0)
DISK = disk.REAL_DISK


log = logging.getLogger(__name__)


class BatchFile(Struct, frozen=True, kw_only=True):
    """Content of `batch.json`, in which the values of secrets are masked."""

    digest: str
    """SHA-256 of the tasks as they were read."""
    folder: str
    """Folder to which the paths of tasks are relative."""
    doing: Doing
    shard: str | None = None
    commits: Mapping[str, str] = {}
    """Commits of the refs of repositories at the time when their tasks were first read, by `commit_key`."""


class StoredStatus(Struct, frozen=True, kw_only=True):
    """The fields of a line of `results.jsonl` that show what is final. They are quick to read."""

    id: str
    status: Status


class AttemptLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the journal. Without usage it records an attempt that reached the model, otherwise the usage of one
    request.
    """

    id: str
    model: str = ""
    usage: TaskUsage | None = None


def read_batch(out: Path) -> BatchFile | None:
    """Return the description of the folder's batch. None if the folder does not exist, or is empty. Raises
    InvalidCommandLine.
    """
    try:
        names = os.listdir(out)
        if BATCH in names:
            found = msgspec.json.decode(read_file(out, BATCH), type=BatchFile)
            commits = {ref: id for ref, id in found.commits.items() if not id or WHOLE_ID.fullmatch(id)}
            return replace(found, commits=commits)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidCommandLine(f"{out}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise InvalidCommandLine(f"{out}: {BATCH} is damaged: {error}") from None
    if any(name != LOCK and STAGED not in name for name in names):
        raise InvalidCommandLine(f"{out} has files in it, and is of no batch: expected a new folder")
    return None


def require_batch(out: Path) -> BatchFile:
    """Return the description of the folder's batch. Raises InvalidCommandLine if the folder is not of a batch."""
    if (found := read_batch(out)) is None:
        raise InvalidCommandLine(f"{out} is of no batch: expected a folder that -o named")
    return found


def is_known(out: Path, home: Path) -> bool:
    """Return whether the folder has the description that a command of this home wrote there."""
    try:
        return batch_folders.is_known(str(home), str(out), read_file(out, BATCH))
    except OSError:
        return False


def read_file(out: Path, name: str) -> bytes:
    """Return the content of a regular file of this folder, or of another batch's, whoever wrote it. Raises OSError."""
    with RootDir.named_by_user(out) as folder:
        return folder.read(name, LARGEST_FILE)


class OutFolder:
    """The folder while a coordinator works in it. It is a context manager."""

    def __init__(self, out: Path, home: Path) -> None:
        """Make the folder if it is missing, and lock it. `home` is the user's. Raises InvalidCommandLine."""
        self.home = home
        self._unsynced: set[Path] = set()
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

    def begin(
        self, batch: BatchFile, tasks: bytes, again: Collection[str] = (), *, known: bool = True
    ) -> None:
        """Store the description of the batch, and put aside the results of tasks that run `again`. `known` says that
        the whole description is from the command line, so that a later command may trust it. Raises InvalidCommandLine.
        """
        stored = msgspec.json.encode(replace(batch, doing=without_secrets(batch.doing)))
        content = msgspec.json.format(stored, indent=2)
        noted = (str(self.home), str(self.path), content)
        if known:
            self._note(batch_folders.note, *noted)
        try:
            self._replace(BATCH, content)  # this file is the first, because it marks the folder as a batch's
            self._replace(TASKS, tasks)
            for name in (PATCHES, EVENTS, HOMES):
                (self.path / name).mkdir(exist_ok=True)
            if again:
                lines = _lines_by_id(self.path)
                append_lines(self.path / RETRIED, [line for id, line in lines.items() if id in again])
                self._replace(RESULTS, b"".join(line for id, line in lines.items() if id not in again))
        except OSError as error:
            raise InvalidCommandLine(f"{self.path} cannot be written: {error.strerror or error}") from None

        self._note(batch_folders.forget_others, *noted)

    def _note(self, note: Callable[[str, str, bytes], None], home: str, out: str, content: bytes) -> None:
        """Record the folder in the home. If the home cannot be written, the folder is not known to later commands."""
        try:
            note(home, out, content)
        except OSError as error:
            log.warning("what %s is for cannot be noted in the home: %s", out, error)

    def _replace(self, name: str, content: bytes) -> None:
        write_file_atomically(self.path / name, content, 0o600)

    def write_files(self, ended: Ended, *, final: bool) -> None:
        """Write and sync the files of an attempt, and those of a result if it is `final`, which then names its patch.
        An attempt has a thread's file if it was made in a home outside of this folder. Raises OSError.
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
        """Write a file that is valid only once there is a final line of its task. Missing folders are made, and no link
        is followed.
        """
        with RootDir(self.path) as folder, folder.staged(name, 0o600) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._unsynced.add((self.path / name).parent)

    def sync(self) -> None:
        """Make the names of the files durable that were written since the last call."""
        while self._unsynced:
            sync_folder(self._unsynced.pop())

    def show_running(self, running: int) -> None:
        """Store the number of running tasks, for commands that show the state of the batch."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, os.pwrite(self._lock, b"%9d" % running, 0))

    def link_threads(self, node: str) -> None:
        """Link the threads of a machine into the user's home, so that they can be found by their ids. A failure is
        ignored.
        """
        links, home = self.home / OTHER_HOMES, self.path / HOMES / node
        link = links / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
        with contextlib.suppress(OSError):
            home.mkdir(exist_ok=True)
            links.mkdir(exist_ok=True)
            for each in links.iterdir():
                if not each.exists():
                    each.unlink()  # its batch has been removed
            link.symlink_to(home)

    def take_over(self, shard: Path) -> list[str]:
        """Add the results of another folder, with their files. Return the names of files that were left out, with the
        reason. Raises InvalidCommandLine and OSError.
        """
        have, lines = _lines_by_id(self.path), _lines_by_id(shard)
        for id, line in lines.items():
            if have.get(id, line) != line:
                raise InvalidCommandLine(f"{shard}: the task {id!r} has another result already")
        left_out = self._copy_files(shard, lines)
        self.sync()
        its, ours = (
            Counter(line for _, line in read_lines(each / JOURNAL, AttemptLine))
            for each in (shard, self.path)
        )
        append_lines(self.path / JOURNAL, list((its - ours).elements()))
        append_lines(self.path / RESULTS, [line for id, line in lines.items() if id not in have])
        return left_out

    def _copy_files(self, shard: Path, ids: Iterable[str]) -> list[str]:
        """Copy the files of these tasks and all threads. Return the names of files that are not regular."""
        left_out: list[str] = []
        names = [f"{PATCHES}/{file_name(id)}.diff" for id in ids] + [
            f"{EVENTS}/{file_name(id)}.jsonl" for id in ids
        ]
        with RootDir.named_by_user(shard) as source:
            threads = list(_files_in(source, HOMES, left_out))
            for name in (*names, *threads):
                try:
                    self._write(name, source.read(name, LARGEST_FILE))
                except FileNotFoundError:
                    pass  # the task changed nothing, or its events were not kept
                except (RefusedName, NotADirectoryError, IsADirectoryError) as error:
                    left_out.append(f"{name}: {error.strerror}")
        return left_out


def _files_in(folder: RootDir, name: str, left_out: list[str]) -> Iterator[str]:
    """Yield the names of regular files in a folder and its subfolders."""
    waiting = [name]
    while waiting:
        inner = waiting.pop()
        try:
            with folder.entries(inner) as entries:
                found = [
                    (f"{inner}/{each.name}", each.stat(follow_symlinks=False).st_mode) for each in entries
                ]
        except FileNotFoundError:
            continue
        except OSError as error:
            left_out.append(f"{inner}: {error.strerror}")
            continue
        for path, mode in found:
            if stat.S_ISDIR(mode):
                waiting.append(path)
            elif stat.S_ISREG(mode):
                yield path
            else:
                left_out.append(f"{path}: not a regular file")


class Results:
    """Stored state of these tasks: their final lines, and the attempts at them."""

    def __init__(self, folder: Path, ids: Container[str]) -> None:
        """Read the state. Raises OSError."""
        self._folder = folder
        self.final = {id: status for id, status in final_statuses(folder).items() if id in ids}
        self.statuses = Counter(self.final.values())
        self.spent: dict[str, TaskUsage] = {}
        """Usage by model, of all tasks in all runs."""
        self.attempts: Counter[str] = Counter()
        self.usage: dict[str, TaskUsage] = {}
        """Usage by task id of tasks without a final line, like `attempts`."""
        for each, _ in read_lines(folder / JOURNAL, AttemptLine):
            self._take(each)
        self.notes: list[bytes] = []
        """Lines of the journal that are not written yet."""

    def reached(self, ids: Collection[str]) -> None:
        """Write journal lines of attempts whose first request is about to be sent. Raises OSError."""
        for id in ids:
            self._note(AttemptLine(id=id))
        if ids:
            self.write_notes()

    def took(self, id: str, model: str, usage: TaskUsage) -> None:
        """Record the usage of a request, without writing it yet."""
        self._note(AttemptLine(id=id, model=model, usage=usage))

    def write_notes(self) -> None:
        """Write the recorded lines. Raises OSError."""
        if self.notes:
            append_lines(self._folder / JOURNAL, self.notes, synced=False)
            self.notes = []

    def append(self, results: Sequence[Result]) -> None:
        """Write final lines, with the usage of all attempts at each task, and sync them. Blocks. Raises OSError; then
        none of the lines is written.
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
    """Yield the complete lines of a file that may be missing, each with its stored bytes. Damaged lines are left out.
    Raises OSError.
    """
    decoder = msgspec.json.Decoder(kind)
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(RootDir.named_by_user(path.parent))
            file, _ = stack.enter_context(folder.opened(path.name))
        except FileNotFoundError:
            return
        for line in stack.enter_context(open(file, "rb", closefd=False)):
            try:
                each = decoder.decode(line)
            except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
                continue
            if line.endswith(b"\n"):
                yield each, line


def final_statuses(out: Path) -> Mapping[str, Status]:
    """Return the final statuses of tasks by their ids. Raises OSError."""
    return {each.id: each.status for each, _ in read_lines(out / RESULTS, StoredStatus)}


def _lines_by_id(out: Path) -> Mapping[str, bytes]:
    return {each.id: line for each, line in read_lines(out / RESULTS, StoredStatus)}


def append_lines(path: Path, lines: Sequence[bytes], *, synced: bool = True) -> None:
    """Append lines to a file after its last complete line; the rest of the file is cut off. Raises OSError; then none
    of the lines is written.
    """
    file = os.open(path, APPENDING, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise RefusedName(errno.EINVAL, f"{path.name} is not a regular file")
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
