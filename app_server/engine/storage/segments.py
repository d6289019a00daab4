"""Reads files that continue a part of another file, as codex since 0.159 writes them for a thread that is forked or
reverted: the first line names the other file, and up to which byte that file counts.

A reader of the whole file gets a joined copy in memory: the file's own first line, the part of the other file after its
first line, and the rest of the file. So line numbers, and all readers, are those of a plain file. Such a file is
appended to like any other; nothing is ever written into the file that it continues.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct

from app_server.engine.storage.disk import opened
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.record import RawLine, read_record
from app_server.engine.storage.rollout_files import find_file, folders, rollouts_in
from app_server.engine.storage.rollout_names import home_of
from app_server.engine.support.engine_errors import RolloutUnreadable

MOST_FILES: Final = 256
"""Maximum length of a chain of files, each of which continues the next."""
FIRST_LOOK: Final = 1024
"""Number of bytes that are read first: most first lines are shorter."""
COPIED_AT_ONCE: Final = 1024 * 1024
_MARK: Final = b'"history_base":{'


class HistoryBase(Struct, frozen=True):
    """The part of another file that has the first lines of a thread."""

    file_id: str
    """Id of the other file: the last id in its name."""
    end: int
    """Number of bytes of the other file that count."""


class Piece(Struct, frozen=True):
    """A part of an open file, between two offsets."""

    fd: int
    begin: int
    end: int


def base_of(first_line: bytes) -> HistoryBase | None:
    """Return what the file with this first line continues; None if the file stands alone."""
    record = read_record(first_line) if _MARK in first_line else None
    meta = record.value() if record is not None and record.kind == "session_meta" else None
    match (meta or {}).get("history_base"):
        case {"thread_id": str(id), "end_byte_offset": int(end)}:
            return HistoryBase(id, end)
        case _:
            return None


@contextmanager
def opened_whole(path: Path) -> Iterator[int]:
    """Hold a rollout open for reading, joined with the files that it continues. Raises `RolloutUnreadable`."""
    with opened(path, whole=True) as fd, ExitStack() as held:
        found = pieces(path, fd, held)
        yield fd if found is None else _joined(found, held)


def pieces(path: Path, fd: int, held: ExitStack) -> list[Piece] | None:
    """Return the parts of an open rollout in their order; None if it stands alone. The files of the parts stay open as
    long as `held`. Raises `RolloutUnreadable` if a file that it continues is missing, or is shorter than the part that
    counts.
    """
    head_of_line = os.pread(fd, FIRST_LOOK, 0)
    if b"\n" in head_of_line and _MARK not in head_of_line:
        return None
    first = next(raw_lines(fd), None)
    if first is None or (base := base_of(first.data)) is None:
        return None
    found = [Piece(fd, first.end, os.fstat(fd).st_size)]
    head = Piece(fd, 0, first.end)
    for _ in range(MOST_FILES):
        earlier = _find(path, base.file_id)
        fd = held.enter_context(opened(earlier, whole=True))
        if os.fstat(fd).st_size < base.end:
            raise RolloutUnreadable(f"{path} goes on from {earlier}, which is shorter than it was")
        first = next(raw_lines(fd), None)
        begin = 0 if first is None else min(first.end, base.end)
        found.append(Piece(fd, begin, base.end))
        following = None if first is None else base_of(first.data)
        if following is None:
            return [head, *reversed(found)]
        base = following
    raise RolloutUnreadable(f"{path} goes on from more than {MOST_FILES} files")


def head_lines(path: Path, fd: int, most: int) -> Iterator[RawLine]:
    """Return the first lines of an open rollout, from at most `most` bytes of each of its files. If a file that it
    continues cannot be read, only its own lines are returned.
    """
    own = raw_lines(fd, 1, 0, most)
    first = next(own, None)
    if first is None:
        return own
    return chain((first,), own if base_of(first.data) is None else _lines_behind_head(path, fd, most, own))


def _lines_behind_head(path: Path, fd: int, most: int, own: Iterator[RawLine]) -> Iterator[RawLine]:
    with ExitStack() as held, suppress(RolloutUnreadable):
        for part in (pieces(path, fd, held) or [])[1:]:
            yield from raw_lines(part.fd, 1, part.begin, min(part.end, part.begin + most))
        return
    yield from own


def _find(path: Path, file_id: str) -> Path:
    home = home_of(path)
    found = None
    if home is not None:
        found = find_file(home, file_id) or find_file(home, file_id, archived=True)
    if found is None:
        raise RolloutUnreadable(f"{path} goes on from the file of {file_id[:64]}, which is not there")
    return found


def _joined(found: list[Piece], held: ExitStack) -> int:
    """Return the descriptor of an anonymous file that contains these parts."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("rollout", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    held.callback(os.close, fd)
    for piece in found:
        place, last = piece.begin, b"\n"
        while place < piece.end and (
            data := os.pread(piece.fd, min(COPIED_AT_ONCE, piece.end - place), place)
        ):
            os.write(fd, data)
            place, last = place + len(data), data[-1:]
        if last != b"\n" and piece is not found[-1]:
            os.write(fd, b"\n")
    return fd


def going_on_from(home: Path, file_ids: Container[str], but_for: Container[Path]) -> Path | None:
    """Return a rollout of the home that continues one of the files with these ids; None if there is none. Reads the
    first line of every rollout, except for those in `but_for`.
    """
    for archived in (False, True):
        for folder in folders(home, archived=archived):
            for path in (each for each in rollouts_in(folder.path) if each not in but_for):
                with suppress(RolloutUnreadable), opened(path) as fd:
                    first = next(raw_lines(fd), None)
                    base = None if first is None else base_of(first.data)
                    if base is not None and base.file_id in file_ids:
                        return path
    return None
