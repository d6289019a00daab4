"""The `session/update` notifications of a session, according to its client's capabilities, and the pace of its lines.
Pure, but for the clock.

Text that arrives within a few milliseconds is coalesced, and the output of a command is sent a few times a second. All
other updates are sent at once, after the text that waits. Here are only offsets of texts; the texts are those of the
running turn (`LiveTurn`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from typing import Final, assert_never

from msgspec import Struct

from app_server.server.apis.acp import tool_call_views
from app_server.server.apis.acp.acp_client import AcpClient
from app_server.server.apis.acp.formatting import plain_output
from app_server.server.conversations.adapter import Message, OutboundMessage
from app_server.server.conversations.item_text import PrintedOutput, ShownText, TextLines
from app_server_protocol.acp.tool_calls import (
    SessionToolCall,
    SessionToolCallUpdate,
    TerminalOfCall,
    ToolCallStatus,
    ToolKind,
)
from app_server_protocol.acp.updates import (
    AvailableCommandsUpdate,
    CompactionUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    MessageChunk,
    NoticeUpdate,
    PlanEntry,
    PlanUpdate,
    SessionInfoUpdate,
    SessionUpdate,
    UsageUpdate,
)
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.engine.item_values import PlanItemArg
from app_server_protocol.jsonrpc import SESSION_UPDATE

TEXT_SECONDS: Final = 0.016
OUTPUT_SECONDS: Final = 0.25
MOST_TEXT: Final = 32 * 1024
"""Length of an update's text above which no more text is coalesced with it, in characters."""
KEPT_OUTPUT: Final = 32 * 1024
"""Maximum length of a running command's output that is shown, in characters: its end."""


class Speaker(Enum):
    """The updates that are pieces of messages, by their speaker."""

    USER = "user_message_chunk"
    AGENT = "agent_message_chunk"
    THOUGHT = "agent_thought_chunk"


class PacedText(Struct):
    """Text that is not sent yet: what `lines` have not sent."""

    lines: TextLines
    length: int
    """Length of the text that was sent, in characters."""
    due: float


class PacedOutput(Struct):
    """Output of a running command, of which a part is not sent yet."""

    call: tool_call_views.ToolCallView
    output: PrintedOutput
    lines: TextLines
    """Output as streamed text, for clients that display it while the command runs."""
    sent: int = 0
    """Length of the output that was sent, in characters."""
    due: float = 0.0
    """Time from which more output may be sent, in seconds by the clock."""

    @property
    def waits(self) -> bool:
        return self.sent < self.output.length

    def was_sent(self, due: float) -> None:
        """Note that all output was sent. More must not be sent before `due`."""
        self.sent, self.due = self.output.length, due


class UpdateThrottle:
    """Makes messages of a session's updates, in order, and holds back text with which later text may be coalesced."""

    def __init__(self, session_id: str, clock: Callable[[], float], *, paced: bool = True) -> None:
        """Begin without messages. `clock` returns seconds. If `paced` is False, no text is held back."""
        params = f'"params":{{"sessionId":{json.dumps(session_id)},"update":'
        self._head = f'{{"method":{json.dumps(SESSION_UPDATE)},{params}'.encode()
        self.clock, self._paced = clock, paced
        self._messages: list[Message] = []
        self._waiting: PacedText | None = None
        self._free_at = 0.0

    def taken(self) -> list[Message]:
        """Return the messages that are due, and remove them."""
        messages, self._messages = self._messages, []
        return messages

    def add(self, update: SessionUpdate) -> None:
        """Add one update, after the text that waits."""
        state = state_of(update)
        self._add(update.to_json(), None if state is None else (self._head, state))

    def _add(self, update: bytes, state: tuple[bytes, str] | None = None) -> None:
        self.send_text()
        self._messages.append(OutboundMessage(self._line(update), state=state))

    def text(self, speaker: Speaker, message_id: str, text: ShownText, prefix: str = "") -> None:
        """Add that a text of a message has grown by its last event. `prefix` comes before the beginning of the text."""
        lines, waiting, now = text.lines.get(self), self._waiting, self.clock()
        if lines is None:
            lines = text.lines[self] = self.text_lines(
                text, 0, lambda said: _chunk(speaker, message_id, said), prefix
            )
        if waiting is not None:
            if waiting.lines is not lines:
                self.send_text()
            elif text.length - _length(text, text.since) - waiting.length < MOST_TEXT:
                return
            else:
                self._messages.append(lines.grow(text.since))
                self._waiting, self._free_at = None, now + TEXT_SECONDS
        if not self._paced or now >= self._free_at:
            self._messages.append(lines.grow())
            self._free_at = now + TEXT_SECONDS
        else:
            self._waiting = PacedText(lines, text.length - _length(text, lines.end), self._free_at)

    def whole_text(self, speaker: Speaker, message_id: str, text: str) -> None:
        """Add a piece of a message that is not coalesced with others."""
        self._add(_chunk(speaker, message_id, text))

    def piece(self, lines: TextLines) -> None:
        """Add all text that was not sent, after the text that waits."""
        self.send_text()
        self._messages.append(lines.grow())

    def send_text(self) -> None:
        """Add the text that waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._messages.append(waiting.lines.grow())
            self._free_at = self.clock() + TEXT_SECONDS

    def text_lines(
        self, text: ShownText, first: int, update: Callable[[str], bytes], prefix: str = ""
    ) -> TextLines:
        """Return the lines of a text from the offset `first` on. `update` makes the update of a piece."""

        def make(start: int, end: int) -> list[bytes]:
            said = text.text(start, end)
            if not said:
                return []
            return [self._line(update(prefix + said if start == first else said))]

        return TextLines(text, make, first, overhead=len(self._line(update(""))), longest=MOST_TEXT)

    def _line(self, update: bytes) -> bytes:
        return self._head + update + b"}}"


def _length(text: ShownText, start: int) -> int:
    """Return the length of a text from an offset on, in characters."""
    return sum(len(each) for each in text.pieces[start : text.end] if isinstance(each, str))


def state_of(update: SessionUpdate) -> str | None:
    """Return the name of the state that an update reports: a client that is behind is sent only the last one. None if
    each update counts.
    """
    match update:
        case PlanUpdate():
            return "plan"
        case UsageUpdate():
            return "usage"
        case SessionToolCallUpdate(tool_call_id=id, status=None, content=tuple()):
            return f"output of {id}"
        case SessionToolCall() | SessionToolCallUpdate() | MessageChunk() | NoticeUpdate():
            return None
        case CompactionUpdate() | AvailableCommandsUpdate() | SessionInfoUpdate():
            return None
        case ConfigOptionUpdate() | CurrentModeUpdate():
            return None
        case _:
            assert_never(update)


def _chunk(speaker: Speaker, message_id: str, text: str) -> bytes:
    head = f'{{"sessionUpdate":"{speaker.value}","messageId":{json.dumps(message_id)},"content":'
    return head.encode() + b'{"type":"text","text":' + json_bytes(text) + b"}}"


_STATUS: Final = {
    None: ToolCallStatus.IN_PROGRESS,
    True: ToolCallStatus.COMPLETED,
    False: ToolCallStatus.FAILED,
}


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Notice(Struct, frozen=True):
    """A notice for the user that no model wrote."""

    text: str
    severity: Severity = Severity.WARNING
    details: str | None = None
    passing: bool = False
    """Whether the notice is sent only to clients that can show notices."""


class SessionUpdates(UpdateThrottle):
    """The updates of one session, as lines."""

    def __init__(
        self, session_id: str, client: AcpClient, clock: Callable[[], float], *, live: bool = True
    ) -> None:
        """Begin without updates. If `live` is False, the updates are those of a session that is over: nothing is held
        back, each call is sent as one update in its final state, and no terminal display is opened.
        """
        super().__init__(session_id, clock, paced=live)
        self._client, self._live = client, live
        self._displays = client.terminal_output and live
        self._running: dict[str, PacedOutput] = {}

    # --- the pace
    @property
    def due(self) -> float | None:
        """Return the time at which `flush` is needed next, by the clock; None if it is not needed."""
        times = [each.due for each in self._running.values() if each.waits]
        return min(times if self._waiting is None else [*times, self._waiting.due], default=None)

    def flush(self) -> None:
        """Write the updates that are due."""
        now = self.clock()
        if self._waiting is not None and self._waiting.due <= now:
            self.send_text()
        for each in self._running.values():
            if each.waits and each.due <= now:
                self._output(each, now)

    def finish(self) -> None:
        """Write all updates that wait, because the turn is over."""
        self.send_text()
        self._running.clear()

    # --- messages
    def block(self, speaker: Speaker, message_id: str, block: Json) -> None:
        """Write a part of a message that is not text: a content block."""
        self.add(MessageChunk(session_update=speaker.value, message_id=message_id, content=block))

    def notice(self, notice: Notice, message_id: str) -> None:
        """Write a notice; for clients that cannot show notices, a thought under that id."""
        if self._client.notices:
            shown = NoticeUpdate(
                severity=notice.severity.value, title=notice.text, description=notice.details
            )
            self.add(shown)
        elif not notice.passing:
            text = notice.text if notice.details is None else f"{notice.text}\n{notice.details}"
            head = "" if notice.severity is Severity.INFO else f"{notice.severity.capitalize()}: "
            self.whole_text(Speaker.THOUGHT, message_id, f"{head}{text}\n")

    # --- states
    def plan(self, steps: Iterable[PlanItemArg]) -> None:
        """Write the whole plan."""
        entries = tuple(PlanEntry(content=each.step, priority="medium", status=each.status) for each in steps)
        self.add(PlanUpdate(entries=entries))

    def usage(self, used: int, size: int) -> None:
        """Write how full the context window is."""
        self.add(UsageUpdate(used=used, size=size))

    def compaction(self, id: str, succeeded: bool | None = None) -> None:
        """Write that a compaction has begun, or whether it has succeeded."""
        status = _STATUS[succeeded]
        if succeeded is None and not self._live:
            return
        if self._client.compaction:
            self.add(CompactionUpdate(compaction_id=id, status=status))
        elif succeeded is None or not self._live:
            title = "Compact the conversation"
            call = SessionToolCall(tool_call_id=id, title=title, kind=ToolKind.THINK, status=status)
            self.add(call)
        else:
            self._call_update(id, status=status)

    # --- tool calls
    def call(self, call: tool_call_views.ToolCallView) -> None:
        """Write the current state of a call that the client does not know yet."""
        if self._live:
            self._whole_call(call)

    def _whole_call(self, call: tool_call_views.ToolCallView) -> None:
        display = self._displays and call.runs_command
        meta = {"terminal_info": {"terminal_id": call.id, "cwd": call.cwd}} if display else None
        content = (TerminalOfCall(terminal_id=call.id),) if display else call.content
        fields = call.fields(content, call.status)
        self.add(SessionToolCall(**fields, raw_output=call.raw_output, meta=meta))

    def call_runs(self, call: tool_call_views.ToolCallView) -> None:
        """Write that the call goes on, after the user's approval."""
        self._call_update(call.id, status=call.status)

    def call_prints(self, call: tool_call_views.ToolCallView, output: PrintedOutput) -> None:
        """Write more output of a command, now or a little later."""
        now, paced = self.clock(), self._running.get(call.id)
        if paced is None:
            lines = self.text_lines(output, 0, lambda text: _display(call.id, text))
            paced = self._running[call.id] = PacedOutput(call, output, lines)
        if paced.due <= now or (self._displays and output.length - paced.sent > MOST_TEXT):
            self._output(paced, now)

    def call_ends(self, call: tool_call_views.ToolCallView, *, ran: bool = False) -> None:
        """Write the final state of a call. `ran` says whether a command was started."""
        if not self._live:
            self._whole_call(call)
            return
        running = self._running.pop(call.id, None)
        content, meta = call.content, None
        if self._displays and call.runs_command:
            if running is not None and running.waits:
                self.piece(running.lines)
            if ran:  # else no output was displayed
                content = (TerminalOfCall(terminal_id=call.id), *call.notes)
            exit_status = {"terminal_id": call.id, "exit_code": call.exit_code, "signal": None}
            meta = {"terminal_exit": exit_status}
        self._call_update(
            call.id,
            title=call.title if call.kind is ToolKind.FETCH else None,
            status=call.status,
            content=content,
            raw_output=call.raw_output,
            meta=meta,
        )

    def _output(self, paced: PacedOutput, now: float) -> None:
        if self._displays:
            self.piece(paced.lines)
            paced.was_sent(now + TEXT_SECONDS)
        else:
            paced.was_sent(now + OUTPUT_SECONDS)
            content = tool_call_views.output_content(printed(paced.output))
            update = SessionToolCallUpdate(tool_call_id=paced.call.id, content=content)
            self.add(update)

    def _call_update(self, id: str, **fields: Json) -> None:
        self.add(SessionToolCallUpdate(tool_call_id=id, **fields))


def printed(output: PrintedOutput | None) -> str:
    """Return the output of a running command, as far as it is shown."""
    return "" if output is None else plain_output(output.last(KEPT_OUTPUT))


def _display(call_id: str, text: str) -> bytes:
    meta = {"terminal_output": {"terminal_id": call_id, "data": text}}
    return SessionToolCallUpdate(tool_call_id=call_id, meta=meta).to_json()
