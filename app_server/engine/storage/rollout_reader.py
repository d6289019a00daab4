"""Reads a stored conversation as a whole: its metadata, the model's history, and the messages or turns that its client
wants. Resumes a conversation under the lock of its file, with what a crash left over, or reads it for a copy.

Damaged and unknown lines are skipped. The file is read in pieces with a maximum line length, so that an endless line
costs bounded memory. Payloads are validated in batches, by validators that are built when the first conversation is
resumed. A function from `context` converts a summary into a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, TypeVar, get_args

from msgspec import Struct
from pydantic import Field, TypeAdapter, ValidationError

from app_server.engine.storage.codex_compat import GOAL_KINDS, goal_in, meta_in_our_words, with_whole_name
from app_server.engine.storage.codex_preamble import without_openings
from app_server.engine.storage.conversation_fold import ConversationFold
from app_server.engine.storage.disk import REAL_DISK, DiskCalls
from app_server.engine.storage.journal import NOTHING, CrashRecovery, leftover_of, with_outputs
from app_server.engine.storage.line_reader import (
    raw_lines,
    system_prompt_in,
    usage_in,
    without_collector,
)
from app_server.engine.storage.record import (
    OLDER_EVENTS,
    REVERTED,
    RevertedRanges,
    StoredRecord,
    read_record,
    text_of,
    turns_taken_back,
)
from app_server.engine.storage.reverts import counted_reverts
from app_server.engine.storage.rollout_names import conversation_of
from app_server.engine.storage.segments import opened_whole
from app_server.engine.storage.turn_fold import WholeHistory
from app_server.engine.storage.writer import RolloutWriter, append_revert
from app_server.engine.support.engine_errors import NotStored, RolloutUnreadable
from app_server_protocol import responses
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import Goal
from app_server_protocol.engine.thread_settings import SystemPrompt
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.parse import read
from app_server_protocol.rollout import PAGINATED, CompactedItem, SessionMetaLine, StoredEvent
from app_server_protocol.values import replace

ITEM_NAMES: Final = frozenset(model.model_fields["type"].default for model in get_args(responses.KnownItem))
BATCH: Final = 1024
"""Number of lines that are validated in one call, which is several times faster than one call for each line."""

LINES_AT_ONCE: Final = 256

HistoryLine = responses.ResponseItem | CompactedItem
LineKind = TypeVar("LineKind", CompactedItem, SessionMetaLine)

Rebuild = Callable[[Sequence[responses.ResponseItem], CompactedItem], Sequence[responses.ResponseItem]]
"""Function that returns the history after a compaction, from the history before it and the stored line of the
compaction.
"""


class LastSettings(Struct, frozen=True):
    """The settings of the last turns with which a conversation goes on."""

    model: str | None
    """Model of the last turn that was not reverted; None if it is not stored."""
    system_prompt: SystemPrompt | None
    """Instructions for the model that a client gave for the conversation."""


class StoredConversation(Struct, frozen=True):
    """The content of a rollout."""

    path: Path
    meta: SessionMetaLine
    items: tuple[HistoryLine, ...]
    """The model's history, in the order of the file."""
    leftover: CrashRecovery
    """Items, messages and events that clients received before a crash, and that the file lacks. `messages` and `turns`
    contain those of them that were cut off.
    """
    last: LastSettings
    lines: int
    """Number of lines that were read: those of the file, or as many as were requested."""
    reverted_lines: RevertedRanges
    """Reverted lines of the file, which do not count."""
    goal: Goal | None
    usage: TokenUsageInfo | None
    """The last count of tokens; None if there is none."""
    messages: tuple[EventMsg, ...]
    """Messages as events; empty if they were not requested."""
    turns: WholeHistory | None
    """Turns with their items, and the last plan; None if they were not requested."""
    damaged: int = 0
    """Number of lines of a known kind that cannot be read. Lines of items are read only if messages or turns are
    requested.
    """

    @property
    def is_paginated(self) -> bool:
        return self.meta.history_mode == PAGINATED


def read_rollout(
    path: Path,
    keeps: int | None = None,
    *,
    messages: bool = False,
    turns: bool = False,
    is_open: bool = False,
) -> StoredConversation:
    """Read a file, or its first `keeps` lines, with the messages or turns that clients are shown. `is_open`: the
    conversation goes on in this process, so nothing is left over. Raises `RolloutUnreadable`; its message contains
    nothing from the file. Slow for long files: call it in a thread.
    """
    with opened_whole(path) as fd, without_collector():
        found = _collected(_Collector(path.name, messages=messages, turns=turns), fd, keeps)
        if found.counts_turns:
            found.reverted_lines = counted_reverts(fd, found.lines)
        wants_shown = messages or turns
        if found.reverted_lines or (wants_shown and found.shown is None and found.meta is not None):
            again = _Collector(path.name, messages=messages, turns=turns, before=found)
            found = _collected(again, fd, found.lines)
        leftover = leftover_of(path) if keeps is None and not is_open else NOTHING
        shown = found.shown
        for number, line in enumerate(leftover.lines(), found.lines):
            if shown is not None and (record := read_record(line)) is not None:
                shown.take(number, record)
        if found.meta is None:
            raise RolloutUnreadable(f"{path} is not a rollout: it has no session metadata")
        history = None if shown is None else shown.finish(is_open=is_open)
        return StoredConversation(
            path=path,
            meta=replace(found.meta, id=conversation_of(path.name, found.meta.id)),
            items=tuple(without_openings(found.items, found.meta)),
            leftover=leftover,
            last=found.last_settings(),
            lines=found.lines,
            reverted_lines=found.reverted_lines,
            goal=goal_in(found.goal),
            usage=usage_in(found.counts),
            messages=() if shown is None else tuple(shown.messages),
            turns=history,
            damaged=found.damaged + (0 if shown is None else shown.damaged),
        )


def _collected(found: _Collector, fd: int, most: int | None) -> _Collector:
    """Collect from the first `most` lines; from all if it is None."""
    for raw in islice(raw_lines(fd), most):
        number = raw.number
        found.lines = number + 1
        if (record := read_record(raw.data)) is not None:
            found.take(number, record)
    found.validate_batch()
    return found


class _Collector:
    """Collects the parts of a conversation, in the order of the file."""

    def __init__(
        self, file_name: str, *, messages: bool, turns: bool, before: _Collector | None = None
    ) -> None:
        """Begin to collect. `before`: a collector that has read the file already, and knows which lines were reverted
        and which conversation the file belongs to.
        """
        self._file_name, self._wants_messages, self._wants_turns = file_name, messages, turns
        self.lines = self.damaged = 0
        self.reverted_lines: RevertedRanges = RevertedRanges() if before is None else before.reverted_lines
        self._skips = bool(self.reverted_lines)
        """Whether lines may be reverted. They are not while a file is first read: a line reverts only earlier ones."""
        self.counts_turns = False
        """Whether a line reverts a number of turns."""
        self.meta: SessionMetaLine | None = None
        self.items: list[HistoryLine] = []
        self.goal: Json = None
        """Payload of the last line about the goal."""
        self.counts: list[StoredRecord] = []
        self.shown: ConversationFold | None = None
        """What clients are shown; None if nothing is wanted, or if the file has not said whose it is."""
        if before is not None and before.meta is not None:
            self._begin_shown(before.meta)
        self._pending: list[StoredRecord] = []
        self._turn_context: StoredRecord | None = None
        """Settings of the last turn that counts."""
        self._last_settings: StoredRecord | None = None
        """Settings of the last turn, which stay if it is reverted."""

    def take(self, number: int, record: StoredRecord) -> None:
        if not self._skips or number not in self.reverted_lines:
            self._collect(number, record)
        elif record.kind == "turn_context":
            self._last_settings = record
        if self.shown is not None:
            self.shown.take(number, record)

    def _collect(self, number: int, record: StoredRecord) -> None:
        match record.kind:
            case "response_item":
                if (name := record.name) in ITEM_NAMES:
                    self._pending.append(with_whole_name(record) if name == "function_call" else record)
                    if len(self._pending) >= BATCH:
                        self.validate_batch()
            case "event_msg":
                if record.name not in OLDER_EVENTS:
                    self._take_event(number, record)
            case "turn_context":
                self._turn_context = self._last_settings = record
            case "compacted":
                self.validate_batch()
                compacted = _validated(CompactedItem, record.value())
                self.items += () if compacted is None else (compacted,)
                self.damaged += compacted is None
            case "session_meta" if self.meta is None:
                self.meta = _validated(SessionMetaLine, meta_in_our_words(record.value() or {}))
                if self.meta is not None and number == 0 and self.shown is None:
                    self._begin_shown(self.meta)

    def _begin_shown(self, meta: SessionMetaLine) -> None:
        if self._wants_messages or self._wants_turns:
            self.shown = ConversationFold(
                conversation_of(self._file_name, meta.id),
                self.reverted_lines,
                turns=self._wants_turns,
                messages=self._wants_messages,
            )

    def _take_event(self, number: int, record: StoredRecord) -> None:
        if record.name == "token_count":
            self.counts.append(record)
        elif record.name in GOAL_KINDS:
            self.goal = record.value()
        elif record.name == REVERTED:
            payload = record.value() or {}
            self.counts_turns = self.counts_turns or bool(turns_taken_back(payload))
            self.reverted_lines.take(payload, number)

    def validate_batch(self) -> None:
        """Validate the pending items."""
        pending, self._pending = self._pending, []
        items = _all_items(pending)
        if items is None:
            parsed = (responses.parse_response_item(record.value()) for record in pending)
            items = [item for item in parsed if not isinstance(item, responses.OtherItem)]
            self.damaged += len(pending) - len(items)
        self.items += items

    def last_settings(self) -> LastSettings:
        counting, last = self._turn_context, self._last_settings
        return LastSettings(
            text_of((counting.value() if counting else None) or {}, "model"),
            system_prompt_in(last.value()) if last else None,
        )


@cache
def _item_batch() -> TypeAdapter[list[responses.KnownItem]]:
    return TypeAdapter(list[Annotated[responses.KnownItem, Field(discriminator="type")]])


def _all_items(records: Sequence[StoredRecord]) -> list[responses.KnownItem] | None:
    """Validate these payloads; None if any of them is invalid, or is not exactly one value."""
    payloads = b"[" + b",".join([record.payload for record in records]) + b"]"
    try:
        values = _item_batch().validate_json(payloads)
    except ValidationError:
        return None
    return values if len(values) == len(records) else None


def _validated(kind: type[LineKind], value: Json) -> LineKind | None:
    try:
        return read(kind, value)
    except ValidationError:
        return None


# --- resumed, and read for a copy
class Reopened(Struct, frozen=True):
    """A resumed conversation. Recovered items are in `stored.items`, and no longer in `stored.leftover`."""

    stored: StoredConversation
    writer: RolloutWriter
    not_reverted: NotStored | None = None
    """The reason why lines that were to be reverted count: that could not be written."""


def reopen(
    path: Path,
    now: Callable[[], datetime],
    disk: DiskCalls = REAL_DISK,
    revert: StoredEvent | None = None,
    *,
    messages: bool = False,
    turns: bool = False,
) -> Reopened:
    """Resume a conversation. `revert` is appended first, so that the conversation continues without the lines that it
    reverts. If it cannot be written, the conversation continues with them, and the result says so. Raises
    `RolloutUnreadable` or `RolloutBusy`. Slow for long files: call it in a thread.
    """
    # The lock is taken first: no other process may append between reading and writing.
    writer = RolloutWriter.resume(path, now, disk)
    try:
        refused = None if revert is None else append_revert(writer, revert)
        stored = read_rollout(path, messages=messages, turns=turns)
    except BaseException:
        writer.close()
        raise
    if stored.leftover.of_journal:
        found = recovered_items(stored)
        writer.adopt([*found, *stored.leftover.events])
        stored = replace(stored, items=(*stored.items, *found), leftover=NOTHING)
    return Reopened(stored, writer, refused)


def copy_lines(stored: StoredConversation, writer: RolloutWriter) -> None:
    """Copy a stored conversation, with what a crash left over, to a file of its own. The lines are copied in pieces,
    because a writer's backlog is limited. Raises OSError. Slow for long files: call it in a thread.
    """
    lines = copied_lines(stored)
    while piece := list(islice(lines, LINES_AT_ONCE)):
        writer.append_lines(piece)
    writer.append([*recovered_items(stored), *stored.leftover.events])


def copied_lines(stored: StoredConversation) -> Iterator[bytes]:
    """Yield every line that counts, as it is in the file. The metadata, lines about the goal, which belongs to one
    conversation only, and lines that are no records are left out. Raises `RolloutUnreadable`.
    """
    with opened_whole(stored.path) as fd:
        for raw in islice(raw_lines(fd), stored.lines):
            if raw.number in stored.reverted_lines:
                continue
            record = read_record(raw.data)
            if record is not None and record.kind != "session_meta" and record.name not in GOAL_KINDS:
                yield raw.data


def recovered_items(stored: StoredConversation) -> list[responses.ResponseItem]:
    """Return the items that a crash left over for the history."""
    return [*with_outputs(stored.leftover.items, stored.items), *stored.leftover.messages]


def rebuild_history(lines: Iterable[HistoryLine], rebuild: Rebuild) -> list[responses.ResponseItem]:
    """Return the history after these lines: an item is appended, and a compaction replaces the history before it."""
    history: list[responses.ResponseItem] = []
    for line in lines:
        if isinstance(line, CompactedItem):
            history = list(rebuild(history, line))
        else:
            history.append(line)
    return history
