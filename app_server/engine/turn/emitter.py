"""Emits the events of one turn: its start and end, and its items. Each item ends exactly once.

The emitter knows which items are open. When an attempt is retried or the turn ends, open items are completed as cut,
with their content so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct

from app_server.engine.storage.encode import turn_started_line
from app_server.engine.support.engine_errors import CoreError, ModelError
from app_server.engine.tools.tool_events import BegunItem
from app_server_protocol.engine import events, items
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import TurnAbortReason
from app_server_protocol.engine.item_text import WHOLE, ItemText, Part, with_text
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.rollout import StoredEvent
from app_server_protocol.values import replace


class EventSink(Protocol):
    """Destination of events: the outbox."""

    def emit(
        self, operation_id: str, event: events.EngineEvent, *, turn_id: str | None = None, wake: bool = True
    ) -> None: ...


class StartedItem(Struct, frozen=True):
    item: items.Item
    started_ms: int
    grown: dict[Part, events.ItemTextGrown] = msgspec.field(default_factory=dict)
    """How far each text of a message or of reasoning has been emitted."""

    def cut(self, now_ms: int) -> items.Item:
        item = with_text(self.item, {part: each.text.text(0, each.end) for part, each in self.grown.items()})
        if isinstance(item, items.CommandExecution) and item.seconds is None:
            item = replace(item, seconds=max(now_ms - self.started_ms, 0) / 1000)
        if isinstance(
            item, items.CommandExecution | items.FileChange | items.McpToolCall | items.DynamicToolCall
        ):
            declined = item.status is items.ItemStatus.DECLINED
            return item if declined else replace(item, status=items.ItemStatus.FAILED)
        return item


class OperationEmitter(Struct, frozen=True):
    """Emits the events of an operation that begins no turn, and events outside of operations (id "")."""

    outbox: EventSink
    operation_id: str

    def emit(self, event: events.EngineEvent, *, wake: bool = True) -> None:
        self.outbox.emit(self.operation_id, event, wake=wake)


class TurnEmitter:
    """Emits the events of one turn, from the operation that begins it to its end."""

    def __init__(self, outbox: EventSink, operation_id: str, turn_id: str, now: Callable[[], float]) -> None:
        self._outbox, self.operation_id, self.turn_id, self._now = outbox, operation_id, turn_id, now
        self._open: dict[str, StartedItem] = {}
        self._started_at: float | None = None
        self._plans = 0
        self._rerouted: set[str] = set()
        """Models that answered instead of the requested one."""
        self.when_started: Callable[[], None] | None = None
        """Called once the start of the turn was emitted; None if nothing waits for it."""

    @property
    def has_started(self) -> bool:
        return self._started_at is not None

    # --- the turn
    def emit(self, event: events.EngineEvent, *, wake: bool = True) -> None:
        """Emit an event. `wake` False: the event is stored and sent together with the next one."""
        self._outbox.emit(self.operation_id, event, turn_id=self.turn_id, wake=wake)

    def emit_under(self, turn_id: str, event: events.EngineEvent) -> None:
        """Emit an event of an item that began in the turn `turn_id` and continues in this one."""
        self._outbox.emit(self.operation_id, event, turn_id=turn_id)

    def turn_started(self, kind: events.TurnKind, context_window: int | None) -> None:
        self._started_at = self._now()
        self.emit(events.TurnStarted(kind, context_window, self._started_at))
        if self.when_started is not None:
            self.when_started()

    def rerouted(self, asked: str, answered: str) -> None:
        """Emit that another model answers, once for each model."""
        if answered not in self._rerouted:
            self._rerouted.add(answered)
            self.emit(events.ModelRerouted(asked, answered))
            self.emit(
                WarningNotice(message=f"The provider answered with `{answered}` in place of `{asked}`.")
            )

    def late_start_line(self) -> StoredEvent:
        """Return the line of the turn's start, for a file in which the turn began without its id."""
        started = events.TurnStarted(events.TurnKind.REGULAR, None, self._started_at or self._now())
        line = turn_started_line(self.turn_id, started)
        return replace(line, extra={**line.extra, "late": True})

    def turn_ended(
        self,
        status: events.TurnStatus,
        *,
        last_agent_message: str | None = None,
        error: TurnError | None = None,
        reason: TurnAbortReason | None = None,
    ) -> None:
        """Complete the open items as cut, then end the turn."""
        for id in list(self._open):
            self.cut(id)
        ended_at = self._now()
        self.emit(
            events.TurnEnded(
                status=status,
                started_at=self._started_at,
                ended_at=ended_at,
                seconds=None if self._started_at is None else max(ended_at - self._started_at, 0.0),
                last_agent_message=last_agent_message,
                error=error,
                reason=reason,
            )
        )

    # --- its items
    def start(
        self,
        item: items.Item,
        *,
        announced: bool = True,
        own_id: bool = False,
    ) -> None:
        """Begin an item, which is open until `complete`."""
        at_ms = self._now_ms()
        self._open[item.id] = StartedItem(item, at_ms)
        self.emit(events.ItemStarted(item, at_ms, announced, own_id))

    def grow(self, item_id: str, text: ItemText, end: int, part: Part = WHOLE) -> None:
        """Emit that a text of an open item has come up to `end`. The text is that of whoever writes it, and may have
        come further since.
        """
        grown = self._open[item_id].grown[part] = events.ItemTextGrown(item_id, part, text, end)
        self._outbox.emit(self.operation_id, grown, turn_id=self.turn_id)

    def is_open(self, item_id: str) -> bool:
        return item_id in self._open

    def update(self, item: items.Item) -> None:
        """Replace the stored state of an open item, without an event; this state is completed if the item is cut."""
        open_item = self._open[item.id]
        self._open[item.id] = StartedItem(item, open_item.started_ms, open_item.grown)

    def decline(self, item_id: str) -> None:
        """Cut an item as declined: the user refused it and thereby ended the turn."""
        open_item = self._open.get(item_id)
        if open_item is not None and isinstance(open_item.item, items.CommandExecution | items.FileChange):
            self.update(replace(open_item.item, status=items.ItemStatus.DECLINED))

    def complete(self, item: items.Item, *, announced: bool = True) -> None:
        open_item = self._open.pop(item.id)
        self.emit(events.ItemCompleted(item, open_item.started_ms, self._now_ms(), announced=announced))

    def show(self, item: items.Item, *, announced: bool = True) -> None:
        """Begin and end an item at once."""
        self.start(item, announced=announced)
        self.complete(item, announced=announced)

    def cut_text(self) -> None:
        """Complete the text that the model was writing with its content so far: the attempt is retried."""
        for id, open_item in list(self._open.items()):
            if isinstance(open_item.item, items.AgentMessage | items.Reasoning | items.Plan):
                self.cut(id)

    def new_plan_id(self) -> str:
        """Return the id of the next plan; a turn usually has one."""
        self._plans += 1
        return f"{self.turn_id}-plan" if self._plans == 1 else f"{self.turn_id}-plan-{self._plans}"

    # --- items that outlive their turn
    def detach(self, item_id: str) -> StartedItem:
        """Let an item continue after the turn; its new owner completes it by `complete_detached`."""
        return self._open.pop(item_id)

    def apart(self) -> TurnEmitter:
        """Return an emitter for items that continue while no turn runs."""
        return TurnEmitter(self._outbox, "", self.turn_id, self._now)

    def complete_detached(
        self, item: items.Item, begun: BegunItem, turn_id: str, *, cut: bool = False
    ) -> None:
        """End an item of an earlier turn, `turn_id`, during this one."""
        self.emit_under(turn_id, events.ItemCompleted(item, begun.started_ms, self._now_ms(), cut))

    def cut(self, id: str) -> None:
        """Complete an open item that will not reach its end."""
        open_item, now_ms = self._open.pop(id), self._now_ms()
        self.emit(events.ItemCompleted(open_item.cut(now_ms), open_item.started_ms, now_ms, cut=True))

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


def turn_error(error: BaseException) -> TurnError:
    """Return the error of a turn: the text of the exception, which is fit for a user, and its class."""
    if isinstance(error, ModelError):
        return TurnError(str(error), error.error_class, error.status, error.details)
    return TurnError(str(error), error.error_class if isinstance(error, CoreError) else ErrorClass.OTHER)
