"""The texts of running items as events of the conversation API: deltas of messages and reasoning, output of commands.
Pure.

The lines of a text differ only in the text, so the rest of a line is made once. An item keeps its texts in the running
turn (`LiveTurn`), with the lines in which each operation sends them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Final

from app_server.server.conversations.adapter import Message
from app_server.server.conversations.item_text import LINE_LENGTH, PrintedOutput, ShownText, TextLines
from app_server.server.conversations.live_turn import LiveItem
from app_server_protocol.encoding import json_bytes
from app_server_protocol.engine import items
from app_server_protocol.engine.item_text import Part
from app_server_protocol.events import messages
from app_server_protocol.events.command_events import ExecCommandOutputDeltaEvent
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.ids import ConversationId

MakeEvent = Callable[..., EventMsg]

MESSAGE: Final = (messages.AgentMessageContentDeltaEvent, messages.AgentMessageDeltaEvent)
SUMMARY: Final = (messages.ReasoningContentDeltaEvent, messages.AgentReasoningDeltaEvent)
RAW_CONTENT: Final = (
    messages.ReasoningRawContentDeltaEvent,
    messages.AgentReasoningRawContentDeltaEvent,
)
"""Events of each kind of delta: the one that names its item, and the legacy one."""


class TextEvents:
    """The events about texts of one conversation. `line` makes the line of an event of an operation."""

    def __init__(self, conversation_id: str, line: Callable[[str, EventMsg], bytes]) -> None:
        self._conversation_id, self._line = ConversationId(conversation_id), line

    def grown(self, id: str, part: Part, item: LiveItem | None) -> Sequence[Message]:
        """Return the message that a text has grown. `id` is that of the operation."""
        if item is None or _hides(item.item, part):
            return ()
        text, key = item.parts[part], (self, id)
        lines = text.lines.get(key)
        if lines is None:
            made = self.delta_lines(id, item, part)
            lines = text.lines[key] = _text_lines(text, lambda start, end: made(text.text(start, end)))
        return (lines.grow(),)

    def output(self, id: str, item: LiveItem | None) -> Sequence[Message]:
        """Return the message that a command has printed more."""
        if item is None or item.output is None:
            return ()
        text, key = item.output, (self, id)
        lines = text.lines.get(key)
        if lines is None:
            made = self.output_lines(id, item.started.item.id, text)
            lines = text.lines[key] = _text_lines(text, made)
        return (lines.grow(),)

    def delta_lines(self, id: str, item: LiveItem, part: Part) -> Callable[[str], list[bytes]]:
        """Return the function that makes the lines of a delta: the event with the item's id, if its start was sent, and
        the legacy event.
        """
        if _hides(item.item, part):
            return lambda text: []
        of_item, plain = _kind_of_delta(item.item, part)
        empty = [self._line(id, plain(delta=""))]
        if item.started.announced:
            thread, engine_id = self._conversation_id, item.started.item.id
            shown = of_item(thread_id=thread, turn_id=id, item_id=engine_id, delta="")
            empty.insert(0, self._line(id, shown))
        frames = [_around_delta(line) for line in empty]

        def lines(text: str) -> list[bytes]:
            piece = json_bytes(text)
            return [head + piece + tail for head, tail in frames]

        return lines

    def output_lines(self, id: str, call_id: str, text: PrintedOutput) -> Callable[[int, int], list[bytes]]:
        """Return the function that makes the lines of a range of output. A chunk has a line of its own, also if it is
        long; of several chunks the lines are short.
        """

        def lines(start: int, end: int) -> list[bytes]:
            found = []
            for stream, data in text.chunks(start, end):
                step = LINE_LENGTH if end - start > 1 else max(len(data), 1)
                for at in range(0, len(data), step):
                    chunk = base64.b64encode(data[at : at + step]).decode("ascii")
                    event = ExecCommandOutputDeltaEvent(call_id=call_id, stream=stream, chunk=chunk)
                    found.append(self._line(id, event))
            return found

        return lines


def _kind_of_delta(item: items.Item, part: Part) -> tuple[MakeEvent, MakeEvent]:
    if not isinstance(item, items.Reasoning):
        return MESSAGE
    return SUMMARY if part[0] else RAW_CONTENT


def _hides(item: items.Item, part: Part) -> bool:
    """Return whether a text is raw reasoning that this API does not show."""
    return isinstance(item, items.Reasoning) and not part[0] and not item.show_content


def _text_lines(text: ShownText, make: Callable[[int, int], list[bytes]]) -> TextLines:
    """Return lines that begin with the last piece of the text."""
    return TextLines(text, make, text.since, overhead=sum(len(line) + 1 for line in make(0, 0)))


def _around_delta(empty: bytes) -> tuple[bytes, bytes]:
    """Return what comes before and behind the text of an event, which is given as JSON with an empty delta."""
    before, field, behind = empty.partition(b'"delta":')
    return before + field, behind.removeprefix(b'""')
