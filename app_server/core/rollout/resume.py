"""Resumes a stored conversation: locks the file, reads it, recovers items after a crash, and rebuilds the history.

A function from `context` converts a summary into a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

from msgspec import Struct

from app_server.core.rollout.disk import REAL_DISK, DiskCalls
from app_server.core.rollout.reader import HistoryLine, StoredConversation, copied_lines, read_rollout
from app_server.core.rollout.writer import RolloutWriter
from protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    LocalShellCall,
    ResponseItem,
)
from protocol.rollout import CompactedItem, StoredEvent
from protocol.structs import replace

ABORTED = "aborted"
"""The output of a call that a crash interrupted."""

LINES_AT_ONCE = 256

Rebuild = Callable[[Sequence[ResponseItem], CompactedItem], Sequence[ResponseItem]]
"""The history after a compaction, from the history before it and its stored line."""


class Reopened(Struct, frozen=True):
    """A resumed conversation. Recovered items are in `stored.items`, and no longer in `stored.leftover`."""

    stored: StoredConversation
    writer: RolloutWriter


def reopen(
    path: Path, now: Callable[[], datetime], disk: DiskCalls = REAL_DISK, revert: StoredEvent | None = None
) -> Reopened:
    """`revert` is appended first: the conversation goes on without what it takes back. Raises `RolloutUnreadable` or
    `RolloutBusy`. Slow for long files: use a thread."""
    # The lock comes first: no other process may append between reading and writing.
    writer = RolloutWriter.resume(path, now, disk)
    try:
        if revert is not None:
            writer.append([revert])
        stored = read_rollout(path)
    except BaseException:
        writer.close()
        raise
    if stored.leftover:
        found = with_outputs(stored.leftover, stored.items)
        writer.adopt(found)
        stored = replace(stored, items=(*stored.items, *found), leftover=())
    return Reopened(stored, writer)


def read_for_fork(path: Path, keeps: int | None = None) -> StoredConversation:
    """A stored conversation, or its first `keeps` lines, for a copy of it. Leaves the file as it is, whoever writes it.
    Raises `RolloutUnreadable`. Slow for long files: use a thread."""
    stored = read_rollout(path, keeps)
    return replace(stored, leftover=tuple(with_outputs(stored.leftover, stored.items)))


def copy_lines(stored: StoredConversation, writer: RolloutWriter) -> None:
    """What is stored, and what is left over of a crash, for a file of its own. In pieces, because a writer's backlog is
    limited. Raises OSError. Slow for long files: use a thread."""
    lines = copied_lines(stored)
    while piece := list(islice(lines, LINES_AT_ONCE)):
        writer.append_lines(piece)
    writer.append(stored.leftover)


def with_outputs(items: Sequence[ResponseItem], before: Iterable[HistoryLine]) -> list[ResponseItem]:
    """These items, with an "aborted" output for each call without one."""
    answered = {
        item.call_id
        for item in (*before, *items)
        if isinstance(item, FunctionCallOutput | CustomToolCallOutput)
    }
    out: list[ResponseItem] = list(items)
    for item in items:
        match item:
            case CustomToolCall() if item.call_id not in answered:
                out.append(CustomToolCallOutput(call_id=item.call_id, output=ABORTED))
            case FunctionCall() if item.call_id not in answered:
                out.append(_aborted(item.call_id))
            case LocalShellCall() if (call_id := item.call_id or item.id) and call_id not in answered:
                out.append(_aborted(call_id))
            case _:
                pass
    return out


def _aborted(call_id: str) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, output=FunctionCallOutputPayload(content=ABORTED))


def rebuild_history(lines: Iterable[HistoryLine], rebuild: Rebuild) -> list[ResponseItem]:
    """The history after these lines: items are appended, and a compaction replaces the history before it."""
    history: list[ResponseItem] = []
    for line in lines:
        if not isinstance(line, CompactedItem):
            history.append(line)
        else:
            history = list(rebuild(history, line))
    return history
