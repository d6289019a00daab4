"""The folder of a thread's checkpoints in the home: a journal of changes, and contents of files as git objects.

`HOME/checkpoints/THREAD/journal` is appended to, a JSON object a line; readers pass over lines that they do not know.
`HOME/checkpoints/THREAD/objects` has loose objects, compressed as git does, so that git and this server can read them.
Only the user can access the folders. All functions block.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.checkpoints.history import Actor, FileVersion, RecordedChanges, Span, State, Transition
from app_server.engine.support.private_folders import CHECKPOINTS, own_folder, remove_own_folder
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.workspace.git.worktree_files import has_object, object_name

MAX_THREAD_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the contents that are kept for one thread beside the snapshots of a repository, in bytes."""
MAX_HOME_BYTES: Final = 1024 * 1024 * 1024
"""Maximum size of all checkpoints of a home, in bytes: beyond it, those of the oldest threads are removed."""
MAX_JOURNAL_BYTES: Final = 64 * 1024 * 1024
MAX_CONTENT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a file that is kept or restored, in bytes."""
_ENCODED: Final = "\0"
"""First character of a path in the journal that is not UTF-8 and therefore written in hexadecimal."""


class _State(Struct, array_like=True):
    digest: str
    mode: int


class _Change(Struct, omit_defaults=True):
    path: str
    actor: Actor
    before: _State | None = None
    after: _State | None = None
    private: bool = False
    origin: str | None = None


class TurnBeginRecord(Struct, tag="turn", omit_defaults=True):
    id: str
    at: float
    words: str = ""
    root: str = ""
    head: str | None = None


class ChangesRecord(Struct, tag="changes"):
    id: str
    changes: list[_Change]


class TurnEndRecord(Struct, tag="end", omit_defaults=True):
    id: str
    head: str | None = None
    uncovered: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()


class RestoreRecord(Struct, tag="restore"):
    id: str
    at: float
    target: str
    changes: list[_Change]


class RestoreEndRecord(Struct, tag="restored"):
    id: str
    done: list[str]
    """Paths that were changed."""


Record = TurnBeginRecord | ChangesRecord | TurnEndRecord | RestoreRecord | RestoreEndRecord
_DECODER: Final = msgspec.json.Decoder(Record)


def written(changes: Iterable[Transition]) -> list[_Change]:
    """Return changes as they are stored."""
    return [
        _Change(
            _stored_path(each.path),
            each.actor,
            _stored(each.before),
            _stored(each.after),
            each.private,
            None if each.origin is None else _stored_path(each.origin),
        )
        for each in changes
    ]


class CheckpointFolder:
    """The checkpoints of one thread on disk. Not for several threads of the process at once."""

    def __init__(self, home: Path, thread: str) -> None:
        self.home, self.thread = home, thread
        self._made = False

    @property
    def path(self) -> Path:
        return Path(os.path.realpath(self.home), CHECKPOINTS, self.thread)

    @property
    def objects(self) -> Path:
        return self.path / "objects"

    def make(self) -> None:
        """Make the folders that only the user can access. Raises OSError."""
        if not self._made:
            own_folder(self.home, CHECKPOINTS, self.thread, "objects")
            self._made = True

    # --- the journal
    def append(self, *records: Record, durable: bool = False) -> None:
        """Add records. `durable`: return only when the disk has them. Raises OSError."""
        self.make()
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in records)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.path / "journal", flags, 0o600)
        try:
            # A line that a killed server has left incomplete must not swallow this one.
            os.write(fd, b"\n" + lines if _is_torn(self.path / "journal") else lines)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    def read(self) -> RecordedChanges:
        """Return what is recorded; nothing if there is no journal, or none that can be read."""
        try:
            with RootDir(self.path) as folder:
                lines = folder.read("journal", MAX_JOURNAL_BYTES).splitlines()
        except OSError:
            return RecordedChanges()
        return RecordedChanges(_spans(_decoded(lines)))

    # --- contents
    def put(self, contents: Sequence[bytes], *, sha256: bool = False) -> list[str]:
        """Store contents and return their object ids. Raises OSError."""
        self.make()
        ids = []
        with RootDir(self.objects) as objects:
            for content in contents:
                ids.append(object_id := digest_of(content, sha256=sha256))
                if not has_object(objects, object_id):
                    with objects.staged(object_name(object_id), 0o400, objects) as file:
                        file.write(zlib.compress(_head(content) + content, 1))
        return ids

    def has(self, digests: Iterable[str]) -> set[str]:
        """Return those of the object ids whose content is here."""
        try:
            with RootDir(self.objects) as objects:
                return {each for each in digests if has_object(objects, each)}
        except OSError:
            return set()

    def get(self, digest: str) -> bytes | None:
        """Return a content; None if it is not here, too large, or damaged."""
        try:
            with RootDir(self.objects) as objects:
                packed = objects.read(object_name(digest), MAX_CONTENT_BYTES + 4096)
            unpacked = zlib.decompressobj()
            content = unpacked.decompress(packed, MAX_CONTENT_BYTES + 64)
        except (OSError, zlib.error):
            return None
        head, _, content = content.partition(b"\0")
        whole = head == _head(content)[:-1] and digest_of(content, sha256=len(digest) == 64) == digest
        return content if whole else None

    def stamp(self) -> int:
        """Return the present time of the file system's clock, in nanoseconds since 1970, by which it dates changes."""
        self.make()
        fd = os.open(self.path / "clock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b".")
            return os.fstat(fd).st_ctime_ns
        finally:
            os.close(fd)

    def bound(self, most: int = MAX_THREAD_BYTES) -> None:
        """Remove the oldest contents beyond a size."""
        found = sorted(_files(self.objects))
        size = sum(each[1] for each in found)
        for _, length, path in found:
            if size <= most:
                break
            with suppress(OSError):
                os.unlink(path)
            size -= length


def digest_of(content: bytes, *, sha256: bool = False) -> str:
    """Return the object id that git gives to a content."""
    return (hashlib.sha256 if sha256 else hashlib.sha1)(_head(content) + content).hexdigest()


def remove(home: Path, thread: str) -> None:
    """Remove the checkpoints of a thread, if there are any."""
    remove_own_folder(home, CHECKPOINTS, thread)


def sizes(home: Path) -> list[tuple[float, int, str]]:
    """Return the checkpoints of each thread: time of the last change, size in bytes, and the thread's id."""
    found = []
    parent = Path(os.path.realpath(home), CHECKPOINTS)
    with suppress(OSError):
        for name in os.listdir(parent):
            files = list(_files(parent / name))
            found.append(
                (max((each[0] for each in files), default=0.0), sum(each[1] for each in files), name)
            )
    return sorted(found)


def bound_home(home: Path, keeps: str, most: int = MAX_HOME_BYTES) -> None:
    """Remove the checkpoints of the oldest threads beyond a size; those of the thread `keeps` stay."""
    found = sizes(home)
    size = sum(each[1] for each in found)
    for _, length, thread in found:
        if size <= most:
            break
        if thread != keeps:
            remove(home, thread)
            size -= length


def _files(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Yield modification time, size and path of each file below a folder of the home."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with suppress(OSError):
                status = os.lstat(path)
                yield status.st_mtime, status.st_size, path


def _is_torn(journal: Path) -> bool:
    try:
        with open(journal, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False


def _decoded(lines: Iterable[bytes]) -> Iterator[Record]:
    for line in lines:
        with suppress(msgspec.MsgspecError):
            yield _DECODER.decode(line)


def _spans(records: Iterable[Record]) -> list[Span]:
    spans: dict[str, Span] = {}
    for record in records:
        match record:
            case TurnBeginRecord():
                spans.setdefault(
                    record.id,
                    Span(record.id, record.at, record.words, record.root, record.head, record.head),
                )
            case RestoreRecord():
                changes = _read(record.changes)
                spans[record.id] = Span(
                    record.id, record.at, changes=changes, target=record.target, finished=False
                )
            case ChangesRecord() if record.id in spans:
                spans[record.id].changes = [*spans[record.id].changes, *_read(record.changes)]
            case TurnEndRecord() if record.id in spans:
                span = spans[record.id]
                span.end_head, span.uncovered, span.nested = record.head, record.uncovered, record.nested
            case RestoreEndRecord() if record.id in spans:
                span, done = spans[record.id], {_read_path(path) for path in record.done}
                span.changes = [each for each in span.changes if each.path in done]
                span.finished = True
            case _:
                pass
    return list(spans.values())


def _read(changes: Iterable[_Change]) -> list[Transition]:
    return [
        Transition(
            _read_path(each.path),
            each.actor,
            _state(each.before),
            _state(each.after),
            each.private,
            None if each.origin is None else _read_path(each.origin),
        )
        for each in changes
    ]


def _state(stored: _State | None) -> State:
    return None if stored is None else FileVersion(stored.digest, stored.mode)


def _stored(state: State) -> _State | None:
    return None if state is None else _State(state.digest, state.mode)


def _stored_path(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        return _ENCODED + os.fsencode(path).hex()
    return path


def _read_path(path: str) -> str:
    return os.fsdecode(bytes.fromhex(path[1:])) if path.startswith(_ENCODED) else path


def stored_paths(paths: Iterable[str]) -> list[str]:
    """Return paths as they are stored."""
    return [_stored_path(path) for path in paths]


def _head(content: bytes) -> bytes:
    return b"blob %d\0" % len(content)
