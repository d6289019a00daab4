"""Items as notifications, from `item/started` over deltas to `item/completed`.

`item/started` is sent before all other notifications of an item, and `item/completed` once, in the order that the
running turn (`LiveTurn`) restores where the engine breaks it. The texts are those of the running turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from app_server.engine.storage.encode import kept_item
from app_server.server.apis.v2.thread_items import thread_item
from app_server.server.conversations.adapter import Message, OutboundMessage
from app_server.server.conversations.item_text import ShownText, TextLines, cut_to_lines
from app_server.server.conversations.live_turn import LiveItem
from app_server_protocol.encoding import json_bytes
from app_server_protocol.engine import events, items
from app_server_protocol.engine.item_text import Part
from app_server_protocol.jsonrpc import dump_notification
from app_server_protocol.method_table import Fields, S, ServerNotification
from app_server_protocol.v2 import items as wire
from app_server_protocol.values import replace


class NotificationLines:
    """Collects the notifications for one event. `now` returns seconds since 1970."""

    def __init__(self, thread_id: str, now: Callable[[], float]) -> None:
        self._thread, self._now = json.dumps(thread_id), now
        self._messages: list[Message] = []

    def now_ms(self) -> int:
        return int(self._now() * 1000)

    def take(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

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
        self._messages.append(OutboundMessage(line, method, news, state=key))

    def add_text(
        self, item: LiveItem, text: ShownText, method: str, more: bytes = b"", *, output: bool = False
    ) -> None:
        """Add that a text of an item has grown. `more` are the JSON fields after the text of each delta."""
        lines = text.lines.get(self)
        if lines is None:
            lines = text.lines[self] = self._text_lines(item, text, method, more, output=output)
        self._messages.append(lines.grow())

    def _text_lines(
        self, item: LiveItem, text: ShownText, method: str, more: bytes, *, output: bool
    ) -> TextLines:
        """Return the lines of a text, from the last event on."""
        turn_id, item_id = json.dumps(item.turn_id), json.dumps(item.item.id)
        place = f'{{"threadId":{self._thread},"turnId":{turn_id},"itemId":{item_id}'
        head = f'{{"method":{json.dumps(method)},"params":{place},"delta":'.encode()
        tail = more + b'},"emittedAtMs":'

        def line(piece: str) -> bytes:
            return b"".join((head, json_bytes(piece), tail, b"%d}" % self.now_ms()))

        def make(start: int, end: int) -> list[bytes]:
            said = text.text(start, end)
            return [line(piece) for piece in cut_to_lines(said)] if output else [line(said)]

        return TextLines(text, make, text.since, overhead=len(line("")), method=method)


MESSAGE_DELTA = wire.ITEM_AGENT_MESSAGE_DELTA.method
PLAN_DELTA = wire.ITEM_PLAN_DELTA.method
OUTPUT_DELTA = wire.ITEM_COMMAND_EXECUTION_OUTPUT_DELTA.method
SUMMARY_DELTA = wire.ITEM_REASONING_SUMMARY_TEXT_DELTA.method
TEXT_DELTA = wire.ITEM_REASONING_TEXT_DELTA.method

ItemEvent = (
    events.ItemStarted
    | events.ItemCompleted
    | events.ItemTextGrown
    | events.ReasoningSummaryPart
    | events.CommandOutput
    | events.TerminalInput
)


class ItemLines:
    """Writes what the last event says of an item. The running turn has the item, with its text so far."""

    def __init__(self, thread_id: str, lines: NotificationLines) -> None:
        self._thread_id, self._lines = thread_id, lines

    def take(self, event: ItemEvent, item: LiveItem) -> None:
        match event:
            case events.ItemTextGrown(part=part):
                self._lines.add_text(item, item.parts[part], *_kind_of_delta(item.item, part))
            case events.CommandOutput():
                self._output(item)
            case events.ItemStarted():
                self.begun(item)
            case events.ItemCompleted():
                if item.output is not None:
                    self._output(item)  # the rest that is no whole character
                self.completed(item.turn_id, replace(event.item, id=item.item.id), event)
            case events.ReasoningSummaryPart():
                self._lines.add(
                    wire.ITEM_REASONING_SUMMARY_PART_ADDED,
                    thread_id=self._thread_id,
                    turn_id=item.turn_id or "",
                    item_id=item.item.id,
                    summary_index=event.index,
                )
            case events.TerminalInput():
                self._lines.add(
                    wire.ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
                    thread_id=self._thread_id,
                    turn_id=item.turn_id or "",
                    item_id=item.item.id,
                    process_id=event.process_id,
                    stdin=event.text,
                )

    def begun(self, item: LiveItem) -> None:
        """Write that an item has begun, with its content so far."""
        self.shown(item.turn_id, item.so_far(), item.started.at_ms)

    def shown(self, turn_id: str | None, item: items.Item, at_ms: int) -> None:
        self._lines.add(
            wire.ITEM_STARTED,
            item=thread_item(kept_item(item), at_ms, None),
            thread_id=self._thread_id,
            turn_id=turn_id or "",
            started_at_ms=at_ms,
        )

    def completed(self, turn_id: str | None, item: items.Item, event: events.ItemCompleted) -> None:
        self._lines.add(
            wire.ITEM_COMPLETED,
            item=thread_item(kept_item(item), event.started_at_ms, event.at_ms),
            thread_id=self._thread_id,
            turn_id=turn_id or "",
            completed_at_ms=event.at_ms,
        )

    def _output(self, item: LiveItem) -> None:
        """Write output of a command. The output of a patch is for the model; clients see its changes."""
        output = item.output
        if output is not None and output.end > output.since and not isinstance(item.item, items.FileChange):
            self._lines.add_text(item, output, OUTPUT_DELTA, output=True)


def _kind_of_delta(item: items.Item, part: Part) -> tuple[str, bytes]:
    """Return the method of the deltas of a text, and their JSON fields after the text."""
    in_summary, index = part
    match item:
        case items.Reasoning() if in_summary:
            return SUMMARY_DELTA, b',"summaryIndex":%d' % index
        case items.Reasoning():
            return TEXT_DELTA, b',"contentIndex":%d' % index
        case items.Plan():
            return PLAN_DELTA, b""
        case _:
            return MESSAGE_DELTA, b""
