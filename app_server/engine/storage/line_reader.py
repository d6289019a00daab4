"""Reads the lines of a rollout as bytes, forwards from any offset or backwards from the end of the file. The length of
a line is limited.

Also reads what the last lines say: the settings of the last turn, the goal and the count of tokens.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pydantic import ValidationError

from app_server.engine.storage.codex_compat import GOAL_KINDS, goal_in, settings_in_our_words
from app_server.engine.storage.disk import opened
from app_server.engine.storage.record import (
    RawLine,
    StoredRecord,
    read_record,
    text_of,
)
from app_server.engine.storage.rollout_names import conversation_of
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server_protocol.base import tag_of
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import Goal
from app_server_protocol.engine.thread_settings import SystemPrompt
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.events import msg
from app_server_protocol.parse import read
from app_server_protocol.rollout import PAGINATED, TurnContextItem
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server_protocol.events.msg import EventMsg

MAX_LINE_BYTES = 64 * 1024 * 1024
FIRST_BYTES = 16 * 1024
CHUNK_BYTES = 1024 * 1024
BLOCK = 256 * 1024
MOST_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes at the end of a file that are searched. Lines before them are not found."""
MOST_KEPT = 8 * 1024 * 1024
"""Maximum length of a line that is searched for from the end of a file, in bytes."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable garbage collection in the block: it would double the time of reading a long conversation."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def raw_lines(fd: int, number: int = 0, begin: int = 0, end: int | None = None) -> Iterator[RawLine]:
    """Yield the lines between two offsets of the file. `end` is None for the end of the file. The last line may lack
    its line end.

    Raises `RolloutUnreadable` if the first line of the file is too long: no rollout begins with such a line, and the
    rest of the file may be a gigabyte without any line.
    """
    end = os.fstat(fd).st_size if end is None else end
    carry: list[bytes] = []
    carried, place, size = 0, begin, FIRST_BYTES
    while place < end and (chunk := os.pread(fd, min(size, end - place), place)):
        place += len(chunk)
        size = min(size * 4, CHUNK_BYTES)
        *whole, rest = chunk.split(b"\n")
        if carried and whole:
            carried += len(whole[0])
            line = b"".join((*carry, whole.pop(0))) if carried <= MAX_LINE_BYTES else b""
            yield RawLine(number, begin, begin + carried + 1, line)
            number, begin, carry, carried = number + 1, begin + carried + 1, [], 0
        for line in whole:
            behind = begin + len(line) + 1
            yield RawLine(number, begin, behind, line if len(line) <= MAX_LINE_BYTES else b"")
            number, begin = number + 1, behind
        carried += len(rest)
        if carried <= MAX_LINE_BYTES:
            carry.append(rest)
        elif number == 0:
            raise RolloutUnreadable("the file is not a rollout: its first line is too long")
        else:
            carry = []
    if carried:
        yield RawLine(number, begin, begin + carried, b"".join(carry), whole=False)


def lines_from_the_end(fd: int, mark: bytes, most: int = MOST_BYTES) -> Iterator[bytes]:
    """Yield the lines that contain `mark`, the last one first, from at most `most` bytes at the end of the file. `mark`
    contains no line end. The file is searched in blocks, because few lines contain the mark.
    """
    end = os.fstat(fd).st_size
    first = max(end - most, 0)
    rest = b""  # the end of a line whose beginning is not read yet
    while end > first:
        start = max(end - BLOCK, first)
        block = os.pread(fd, end - start, start) + rest
        rest, end = b"", start
        if start > first:
            rest, _, block = block.partition(b"\n")
            if len(rest) > MOST_KEPT:
                rest = b""
        at = len(block)
        while (at := block.rfind(mark, 0, at)) >= 0:
            begin, behind = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            yield block[begin : behind if behind >= 0 else len(block)]
            at = begin


def paginated_thread(path: Path, fd: int) -> str | None:
    """Return the id of the thread of a file in the paginated form; None if the file has another form."""
    first = next(raw_lines(fd), None)
    record = None if first is None else read_record(first.data)
    meta = None if record is None or record.kind != "session_meta" else record.value()
    if meta is None or meta.get("history_mode") != PAGINATED:
        return None
    return conversation_of(path.name, text_of(meta, "id") or "")


def form_of(path: Path) -> tuple[str | None, int]:
    """Return the id of the thread of a file in the paginated form, and the number of its next line; None and 0 if the
    file has another form. Raises RolloutUnreadable.
    """
    with opened(path) as fd:
        thread = paginated_thread(path, fd)
        return thread, 0 if thread is None else _next_ordinal(fd)


def _next_ordinal(fd: int) -> int:
    numbers = (read_record(line) for line in lines_from_the_end(fd, b'"ordinal":'))
    found = next((each.ordinal for each in numbers if each is not None and each.ordinal is not None), None)
    return sum(1 for _ in raw_lines(fd)) if found is None else found + 1


_GOAL_MARK: Final = b"goal_"


def last_goal(path: Path) -> Goal | None:
    """Return the goal of the conversation; None if there is none, or if its line is damaged. Raises
    RolloutUnreadable.
    """
    with opened(path) as fd:
        records = _records(fd, _GOAL_MARK)
        found = next((each for each in records if each.name in GOAL_KINDS), None)
        return goal_in(None if found is None else found.value())


def usage_in(counts: Sequence[StoredRecord]) -> TokenUsageInfo | None:
    """Return the last of these token counts that states a number; None if none does."""
    for record in reversed(counts):
        info = (record.value() or {}).get("info")
        if info is not None:
            try:
                return read(TokenUsageInfo, info)
            except ValidationError:
                continue
    return None


def last_turn_context(path: Path) -> TurnContextItem | None:
    """Return the settings of the last turn; None if no turn was stored. Raises RolloutUnreadable.

    If the file does not name its provider, as files of autumn 2025 do not, the model is left empty: the provider that
    is asked now may not have that model.
    """
    with opened(path) as fd:
        for value in turn_contexts(fd):
            try:
                last = read(TurnContextItem, settings_in_our_words(value))
            except ValidationError:
                continue
            if provider_named(fd) != "":
                return last
            return replace(last, model="", effort=None, further_effort=None)
        return None


def system_prompt_in(settings: Json) -> SystemPrompt | None:
    """Return the instructions of a client in the settings of a turn; None if there are none, or if they are damaged."""
    found = settings.get("system_prompt") if isinstance(settings, dict) else None
    try:
        return None if found is None else msgspec.convert(found, SystemPrompt)
    except msgspec.ValidationError:
        return None


def provider_named(fd: int) -> str | None:
    """Return the id of the provider that a conversation began with; empty if the first line does not name it; None if
    that line cannot be read.
    """
    first = next(raw_lines(fd), None)
    record = None if first is None else read_record(first.data)
    if record is None or record.kind != "session_meta":
        return None
    return text_of(record.value() or {}, "model_provider") or ""


def turn_contexts(fd: int, most: int = MOST_BYTES) -> Iterator[dict[str, Json]]:
    """Yield the settings of turns, the last turn first, from at most `most` bytes at the end of the file."""
    for record in _records(fd, b'"turn_context"', most):
        if record.kind == "turn_context" and (value := record.value()) is not None:
            yield value


def last_turn_start(fd: int) -> dict[str, Json]:
    """Return the line with which the last turn began; empty if there is none."""
    found = (record.value() for record in _records(fd, b'"task_started"') if record.name == "task_started")
    return next(found, None) or {}


def _records(fd: int, mark: bytes, most: int = MOST_BYTES) -> Iterator[StoredRecord]:
    found = (read_record(line) for line in lines_from_the_end(fd, mark, most))
    return (record for record in found if record is not None)


def parse_event_msg(raw: Json) -> EventMsg | None:
    """Return the event that `raw` describes; None if its type is unknown or its shape is damaged."""
    kind = tag_of(raw)
    model = None if kind is None else msg.EVENTS.get(kind)
    if model is None:
        return None
    try:
        return read(model, raw)
    except ValidationError:
        return None
