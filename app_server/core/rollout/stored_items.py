"""All items of a stored conversation in their order, whoever stored it: with the calls that only the history has.

Also the last plan and the last count of tokens, which belong to no item. One pass over the file, and what a crash has
left over is read as if it stood at the end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from app_server.core.rollout import stored_calls
from app_server.core.rollout.conversation import with_outputs
from app_server.core.rollout.disk import opened
from app_server.core.rollout.journal import NOTHING, leftover_of
from app_server.core.rollout.lines import counting_lines, usage_in
from app_server.core.rollout.record import StoredRecord, parse_object, read_record
from app_server.core.rollout.stored_events import kept_item
from app_server.core.rollout.turn_events import TurnReader
from app_server.core.rollout.turn_fold import ItemIds
from protocol.engine.events import EndedItem, ItemCompleted, SessionEvent, TurnRenamed
from protocol.engine.items import WebSearch
from protocol.events.tools import PlanUpdateEvent
from protocol.events.turn import TokenUsageInfo
from protocol.reading import read
from protocol.rollout import stored_line
from protocol.structs import Json, replace


class StoredItems(Struct, frozen=True):
    items: tuple[EndedItem, ...]
    """Under ids that are unique in the conversation."""
    plan: PlanUpdateEvent | None = None
    usage: TokenUsageInfo | None = None


class _ItemCollector(Struct):
    reader: TurnReader
    cwd: str = "/"
    ended: list[EndedItem] = msgspec.field(default_factory=list)
    calls: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Where in `ended` the calls of the history are, by call id, which may repeat."""
    outputs: dict[str, list[Json]] = msgspec.field(default_factory=dict)
    stored: Counter[str] = msgspec.field(default_factory=Counter)
    """How many calls of an id are stored as items, before or behind their entries of the history."""
    plan: Json = None
    counts: list[StoredRecord] = msgspec.field(default_factory=list)

    def take_line(self, number: int, line: bytes) -> None:
        record = read_record(line)
        if record is not None:
            self._take(number, record)

    def _take(self, number: int, record: StoredRecord) -> None:
        match record.kind:
            case "response_item":
                if record.name in stored_calls.CALLS or record.name in stored_calls.OUTPUTS:
                    self._history(record.value() or {})
                return
            case "session_meta" | "turn_context":
                cwd = (record.value() or {}).get("cwd")
                self.cwd = cwd if isinstance(cwd, str) and os.path.isabs(cwd) else self.cwd
            case "event_msg" if record.name == "token_count":
                self.counts.append(record)
            case _:
                pass
        self._events(self.reader.take(number, record))

    def _history(self, payload: Mapping[str, Json]) -> None:
        kind, id = payload.get("type"), payload.get("call_id")
        if kind in stored_calls.OUTPUTS and isinstance(id, str):
            self.outputs.setdefault(id, []).append(payload.get("output"))
        elif kind in stored_calls.CALLS:
            if payload.get("name") == stored_calls.PLAN_TOOL:
                self.plan = payload.get("arguments")
            item = stored_calls.item_of_call(payload, self.cwd)
            if item is not None:
                self.calls.setdefault(item.id, []).append(len(self.ended))
                self.ended.append(EndedItem(item, None, None))

    def _events(self, events: Iterable[SessionEvent | TurnRenamed]) -> None:
        for event in events:
            if isinstance(event, SessionEvent) and isinstance(event.event, ItemCompleted):
                done = event.event
                item = done.item
                call_id = stored_calls.search_id(item.query) if isinstance(item, WebSearch) else item.id
                self.stored[call_id] += 1
                times = (done.started_at_ms or None, done.at_ms or None)
                self.ended.append(EndedItem(kept_item(item), *times, cut=done.cut))

    def finish(self) -> StoredItems:
        self._events(self.reader.finish())
        outputs: dict[int, Json] = {}
        for id, places in self.calls.items():
            given = self.outputs.get(id, [])
            outputs |= {place: given[n] if n < len(given) else None for n, place in enumerate(places)}
        # The first call of an id is that of its first item, which says more.
        dropped = {place for id, places in self.calls.items() for place in places[: self.stored[id]]}
        ids, items = ItemIds(), list[EndedItem]()
        for n, each in enumerate(self.ended):
            if n in dropped:
                continue
            item, cut = each.item, each.cut
            if n in outputs:  # its id stays free for the items that clients follow
                item = kept_item(stored_calls.ended_item(item, outputs[n]))
                cut = outputs[n] is None and not isinstance(item, WebSearch)
                item = replace(item, id=f"stored {item.id}")
            items.append(replace(each, item=replace(item, id=ids.begin_and_end(item.id)), cut=cut))
        return StoredItems(tuple(items), _plan(self.plan), usage_in(self.counts))


def read_stored_items(path: Path, conversation_id: str, *, is_open: bool = False) -> StoredItems:
    """Read all items of a conversation, with what a crash has left over; not where it `is_open` and goes on. Blocks.
    Raises `RolloutUnreadable`.
    """
    with opened(path, whole=True) as fd:
        collector, end = _ItemCollector(TurnReader(conversation_id)), 0
        for raw in counting_lines(fd):
            end = raw.number + 1
            collector.take_line(raw.number, raw.data)
        leftover = NOTHING if is_open else leftover_of(path, fd)
        calls = (stored_line("", item) for item in with_outputs(leftover.items, ()))
        for number, line in enumerate((*calls, *leftover.lines()), end):
            collector.take_line(number, line)
        return collector.finish()


def _plan(arguments: Json) -> PlanUpdateEvent | None:
    raw = parse_object(arguments.encode("utf-8", "replace")) if isinstance(arguments, str) else None
    try:
        return None if raw is None else read(PlanUpdateEvent, raw)
    except ValidationError:
        return None
