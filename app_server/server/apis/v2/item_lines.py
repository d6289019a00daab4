"""Items as notifications, from `item/started` over deltas to `item/completed`.

`item/started` is sent before all other notifications of an item, and `item/completed` once. If the engine breaks this
order, or an item began before the thread was followed, this module restores it.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from app_server.engine.storage.encode import kept_item
from app_server.server.apis.partial_items import ItemInProgress, ItemsInProgress
from app_server.server.apis.v2.thread_items import thread_item
from app_server.server.conversations.adapter import OutboundMessage
from app_server.server.rpc.backlog import DeltaStream
from app_server_protocol.encoding import json_bytes
from app_server_protocol.engine import events, items
from app_server_protocol.jsonrpc import dump_notification
from app_server_protocol.method_table import Fields, S, ServerNotification
from app_server_protocol.v2 import items as wire
from app_server_protocol.values import replace


class NotificationLines:
    """Collects the notifications for one event. `now` returns seconds since 1970."""

    def __init__(self, thread_id: str, now: Callable[[], float]) -> None:
        self._thread, self._now = json.dumps(thread_id), now
        self._lines: list[OutboundMessage] = []

    def now_ms(self) -> int:
        return int(self._now() * 1000)

    def take(self) -> list[OutboundMessage]:
        lines, self._lines = self._lines, []
        return lines

    def add(self, row: ServerNotification[Fields, S], *args: Fields.args, **fields: Fields.kwargs) -> None:
        self.add_raw(row.method, row.make(*args, **fields).to_json())

    def add_state(
        self,
        row: ServerNotification[Fields, S],
        of: str | None,
        *args: Fields.args,
        **fields: Fields.kwargs,
    ) -> None:
        """Add a notification of a state, which may have an id (`of`); of several such notifications only the last
        counts.
        """
        self.add_raw(row.method, row.make(*args, **fields).to_json(), state=of or "")

    def add_raw(self, method: str, params: bytes, news: object = None, *, state: str | None = None) -> None:
        """Add a notification. `news` is its content, which is not sent again to a client that has it already; `state`
        names the state that it reports.
        """
        line = dump_notification(method, params, self.now_ms())
        key = None if state is None else (self._thread, method, state)
        self._lines.append(OutboundMessage(line, method, news, state=key))

    def streamed(self, method: str, turn_id: str, item_id: str, more: bytes, *, output: bool) -> DeltaStream:
        """Return the streamed text that makes the deltas of one kind and item. `more` are the JSON fields after the
        text.
        """
        place = f'{{"threadId":{self._thread},"turnId":{json.dumps(turn_id)},"itemId":{json.dumps(item_id)}'
        head = f'{{"method":{json.dumps(method)},"params":{place},"delta":'.encode()
        tail = more + b'},"emittedAtMs":'

        def line(text: str) -> bytes:
            return b"".join((head, json_bytes(text), tail, b"%d}" % self.now_ms()))

        return DeltaStream(line, output, method)

    def add_delta(self, text: DeltaStream, piece: str) -> None:
        self._lines.append(OutboundMessage(text.line(piece), text.method, part=text.part(piece)))


MESSAGE_DELTA = wire.ITEM_AGENT_MESSAGE_DELTA.method
PLAN_DELTA = wire.ITEM_PLAN_DELTA.method
OUTPUT_DELTA = wire.ITEM_COMMAND_EXECUTION_OUTPUT_DELTA.method
SUMMARY_DELTA = wire.ITEM_REASONING_SUMMARY_TEXT_DELTA.method
TEXT_DELTA = wire.ITEM_REASONING_TEXT_DELTA.method

Deltas = dict[tuple[str, bytes], DeltaStream]
"""Streamed texts of one item, by the method of its deltas and the JSON fields after their text."""
ThreadItems = ItemsInProgress[Deltas]
ShownItem = ItemInProgress[Deltas]

ItemEvent = (
    events.ItemStarted
    | events.ItemCompleted
    | events.AgentMessageDelta
    | events.ReasoningSummaryDelta
    | events.ReasoningSummaryPart
    | events.ReasoningTextDelta
    | events.CommandOutput
    | events.TerminalInput
)
Ended = tuple[events.ItemCompleted, ...]
"""Ended items, with their ids in the thread."""


class ItemLines:
    def __init__(self, thread_id: str, lines: NotificationLines, open_items: ThreadItems) -> None:
        self._thread_id, self._lines, self._open = thread_id, lines, open_items

    def take(self, turn_id: str, event: ItemEvent) -> Ended:
        """Write the notifications for an event; return the items that it ended."""
        match event:
            case events.AgentMessageDelta():
                self._message_delta(turn_id, event)
            case events.ReasoningSummaryDelta():
                index = b',"summaryIndex":%d' % event.index
                self._thought(turn_id, event, SUMMARY_DELTA, index, summary=True)
            case events.ReasoningTextDelta():
                index = b',"contentIndex":%d' % event.index
                self._thought(turn_id, event, TEXT_DELTA, index, summary=False)
            case events.CommandOutput():
                if (opened := self._open.get(turn_id, event.item_id)) is not None:
                    self._output(opened, opened.output(event.stream, event.chunk))
            case events.ItemStarted():
                return self._started(turn_id, event)
            case events.ItemCompleted():
                return self._completed(turn_id, event)
            case events.ReasoningSummaryPart():
                self._summary_part(turn_id, event)
            case events.TerminalInput():
                self._typed(turn_id, event)
        return ()

    def end_turn(self, turn_id: str, at_ms: int) -> Ended:
        """Complete the items that the turn left open, except commands that go on."""
        left = [each for each in self._open.of_turn(turn_id) if not _goes_on(each.item)]
        return tuple(self._end(each, _cut(each, at_ms)) for each in left)

    # --- begin and end
    def _started(self, turn_id: str, event: events.ItemStarted) -> Ended:
        before = self._open.get(turn_id, event.item.id)
        # Two calls have the same id: from now on the engine means the second by it.
        ended = () if before is None else (self._end(before, _cut(before, event.at_ms)),)
        self._begin(turn_id, event.item, event.at_ms)
        return ended

    def _completed(self, turn_id: str, event: events.ItemCompleted) -> Ended:
        opened = self._open.get(turn_id, event.item.id)
        if opened is None:  # it began before the thread was followed
            opened = self._begin(turn_id, event.item, event.started_at_ms)
        return (self._end(opened, event),)

    def _begin(self, turn_id: str, item: items.Item, at_ms: int) -> ShownItem:
        opened = self._open.begin(turn_id, item, at_ms, lambda _: {})
        self.begun(opened)
        return opened

    def begun(self, opened: ShownItem) -> None:
        """Write that an item has begun, with its content so far."""
        self._lines.add(
            wire.ITEM_STARTED,
            item=thread_item(kept_item(opened.so_far()), opened.started_ms, None),
            thread_id=self._thread_id,
            turn_id=opened.turn_id,
            started_at_ms=opened.started_ms,
        )

    def _end(self, opened: ShownItem, event: events.ItemCompleted) -> events.ItemCompleted:
        for text in opened.rest_of_output():
            self._output(opened, text)
        self._open.end(opened)
        event = replace(event, item=replace(kept_item(event.item), id=opened.item.id))
        self._lines.add(
            wire.ITEM_COMPLETED,
            item=thread_item(event.item, event.started_at_ms, event.at_ms),
            thread_id=self._thread_id,
            turn_id=opened.turn_id,
            completed_at_ms=event.at_ms,
        )
        return event

    # --- between begin and end
    def _message_delta(self, turn_id: str, event: events.AgentMessageDelta) -> None:
        opened = self._open.get(turn_id, event.item_id)
        if opened is not None:
            opened.deltas.append(event.delta)
            method = PLAN_DELTA if isinstance(opened.item, items.Plan) else MESSAGE_DELTA
            self._lines.add_delta(self._streamed(opened, method), event.delta)

    def _thought(
        self,
        turn_id: str,
        event: events.ReasoningSummaryDelta | events.ReasoningTextDelta,
        method: str,
        index: bytes,
        *,
        summary: bool,
    ) -> None:
        opened = self._open.get(turn_id, event.item_id)
        if opened is not None:
            opened.think(event.delta, event.index, summary=summary)
            self._lines.add_delta(self._streamed(opened, method, index), event.delta)

    def _output(self, opened: ShownItem, text: str) -> None:
        if isinstance(opened.item, items.FileChange):
            return  # the output of a patch is for the model; clients see its changes
        if text:
            streamed = self._streamed(opened, OUTPUT_DELTA, output=True)
            for piece in streamed.pieces(text):
                self._lines.add_delta(streamed, piece)

    def _streamed(
        self, opened: ShownItem, method: str, index: bytes = b"", *, output: bool = False
    ) -> DeltaStream:
        streamed = opened.shown.get((method, index))
        if streamed is None:
            item = opened.item.id
            streamed = self._lines.streamed(method, opened.turn_id, item, index, output=output)
            opened.shown[method, index] = streamed
        return streamed

    def _summary_part(self, turn_id: str, event: events.ReasoningSummaryPart) -> None:
        opened = self._open.get(turn_id, event.item_id)
        if opened is not None:
            self._lines.add(
                wire.ITEM_REASONING_SUMMARY_PART_ADDED,
                thread_id=self._thread_id,
                turn_id=turn_id,
                item_id=opened.item.id,
                summary_index=event.index,
            )

    def _typed(self, turn_id: str, event: events.TerminalInput) -> None:
        opened = self._open.latest(turn_id, event.item_id)
        if opened is not None:
            self._lines.add(
                wire.ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
                thread_id=self._thread_id,
                turn_id=opened.turn_id,
                item_id=opened.item.id,
                process_id=event.process_id,
                stdin=event.text,
            )


def _goes_on(item: items.Item) -> bool:
    return isinstance(item, items.CommandExecution) and item.source is items.CommandSource.TERMINAL


def _cut(opened: ShownItem, at_ms: int) -> events.ItemCompleted:
    item = opened.so_far()
    if isinstance(
        item, items.CommandExecution | items.FileChange | items.McpToolCall | items.DynamicToolCall
    ):
        item = replace(item, status=items.ItemStatus.FAILED)
    return events.ItemCompleted(item, opened.started_ms, at_ms, cut=True)
