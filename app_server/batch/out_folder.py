"""The folder of a batch: what it does, its lock, and the files that come back from tasks; what `retry` and `merge` do
to it.

`batch.json` has no secrets. The lock is the coordinator's alone, and whoever asks how a batch stands reads in it which
tasks run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from app_server.batch.messages import HOMES, Doing, Ended
from app_server.batch.results import JOURNAL, RESULTS, AttemptLine, StoredStatus, append_lines, raw_lines
from app_server.batch.secrets import without_secrets
from app_server.batch.tasks import file_name
from app_server.client.command_line import InvalidCommandLine
from app_server.core.config.safe_file import STAGED, write_file_atomically
from app_server.core.rollout.rollout_names import OTHER_HOMES
from app_server.places.locks import LockHeld, hold, is_held
from protocol.structs import replace

BATCH, TASKS, LOCK, RETRIED = "batch.json", "tasks.jsonl", "lock", "retried.jsonl"
PATCHES, EVENTS = "patches", "events"
LOCKED_WITHIN: Final = 1.0
"""Seconds in which a lock may be held by who only looks."""


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
    found = read_batch(out)
    if found is None:
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
        try:
            stored = replace(batch, doing=without_secrets(batch.doing))
            self._replace(BATCH, msgspec.json.format(msgspec.json.encode(stored), indent=2))
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

    def write_files(self, ended: Ended) -> str | None:
        """Write and sync what belongs to a result; return the place of the patch. Raises OSError."""
        name, patch = file_name(ended.result.id), None
        if ended.patch:
            patch = f"{PATCHES}/{name}.diff"
            self._write(patch, ended.patch)
        if ended.events:
            self._write(f"{EVENTS}/{name}.jsonl", ended.events)
        return patch

    def write_thread(self, ended: Ended) -> None:
        """Write the thread of an attempt that was made in a home which is not in this folder. Raises OSError."""
        if ended.rollout is not None:
            self._write(f"{HOMES}/{ended.result.node}/{ended.rollout[0]}", ended.rollout[1])

    def _write(self, name: str, content: bytes) -> None:
        """Write a file that counts only once there is a final line of its task; makes missing folders."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def show_running(self, running: Sequence[str]) -> None:
        """Say which tasks run, for who asks how the batch stands."""
        text = msgspec.json.encode({"pid": os.getpid(), "running": running})
        with contextlib.suppress(OSError):
            os.pwrite(self._lock, text, 0)
            os.ftruncate(self._lock, len(text))

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
            Counter(line for _, line in raw_lines(each / JOURNAL, AttemptLine)) for each in (shard, self.path)
        )
        append_lines(self.path / JOURNAL, list((its - ours).elements()))
        append_lines(self.path / RESULTS, [line for id, line in lines.items() if id not in have])


def _lines_by_id(out: Path) -> Mapping[str, bytes]:
    return {each.id: line for each, line in raw_lines(out / RESULTS, StoredStatus)}


def shown_running(out: Path) -> Sequence[str]:
    """Return which tasks run now, where a coordinator works in the folder."""
    try:
        shown = msgspec.json.decode((out / LOCK).read_bytes())["running"] if is_held(str(out / LOCK)) else ()
    except (OSError, msgspec.MsgspecError, KeyError):  # it is being written
        return ()
    return tuple(shown)
