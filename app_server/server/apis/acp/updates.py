"""The `session/update` notifications of a session, according to its client's capabilities, and the pace of its lines.
Pure, but for the clock.

Text that arrives within a few milliseconds is coalesced, and the output of a command is sent a few times a second. All
other updates are sent at once, after the text that waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from app_server.server.apis.acp.acp_client import AcpClient
from app_server.server.apis.acp.formatting import plain_output
from app_server.server.apis.acp.tool_call_views import ToolCallView, output_content
from app_server.server.conversations.adapter import OutboundMessage
from app_server.server.rpc.backlog import DeltaStream
from app_server_protocol.acp.tool_calls import (
    SessionToolCall,
    SessionToolCallUpdate,
    TerminalOfCall,
    ToolCallStatus,
    ToolKind,
)
from app_server_protocol.acp.updates import (
    CompactionUpdate,
    MessageChunk,
    NoticeUpdate,
    PlanEntry,
    PlanUpdate,
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
"""Maximum length of a running command's output that is kept, in characters: its end."""


class Speaker(Enum):
    """The updates that are pieces of messages, by their speaker."""

    USER = "user_message_chunk"
    AGENT = "agent_message_chunk"
    THOUGHT = "agent_thought_chunk"


class _Waiting(Struct):
    """Text that is not sent yet."""

    said: DeltaStream
    texts: list[str]
    length: int
    due: float


class RunningOutput(Struct):
    """Output of a running command: its end, and the part that is not sent yet."""

    said: DeltaStream
    """Output as streamed text, for clients that display it while the command runs."""
    due: float = 0.0
    """Time from which more output may be sent, in seconds by the clock."""
    news: list[str] = msgspec.field(default_factory=list)
    _kept: list[str] = msgspec.field(default_factory=list)

    def take(self, text: str) -> None:
        """Add a chunk of output."""
        self.news.append(text)
        self._kept.append(text)
        if len(self._kept) > 1 and sum(map(len, self._kept)) > 2 * KEPT_OUTPUT:
            self._kept[:] = [self.so_far()]

    def take_news(self, due: float) -> str:
        """Return the output since the last call. More must not be sent before `due`."""
        news, self.news, self.due = "".join(self.news), [], due
        return news

    def so_far(self) -> str:
        """Return the output so far, as far as it is kept."""
        return "".join(self._kept)[-KEPT_OUTPUT:]


class UpdateThrottle:
    """Makes lines of a session's updates, in order, and holds text back with which later text may be coalesced."""

    def __init__(self, session_id: str, clock: Callable[[], float], *, paced: bool = True) -> None:
        """Begin without lines. `clock` returns seconds. If `paced` is False, no text is held back."""
        params = f'"params":{{"sessionId":{json.dumps(session_id)},"update":'
        self._head = f'{{"method":{json.dumps(SESSION_UPDATE)},{params}'.encode()
        self.clock, self._paced = clock, paced
        self._lines: list[OutboundMessage] = []
        self._said: tuple[Speaker, str, DeltaStream] | None = None
        """The message of which a piece was added last."""
        self._waiting: _Waiting | None = None
        self._free_at = 0.0

    def taken(self) -> list[OutboundMessage]:
        """Return the lines that are due, and remove them."""
        lines, self._lines = self._lines, []
        return lines

    def add(self, update: bytes, state: str | None = None) -> None:
        """Add one update, after the text that waits. `state` names the state that the update reports."""
        self.send_text()
        key = None if state is None else (self._head, state)
        self._lines.append(OutboundMessage(self._line(update), state=key))

    def text(self, speaker: Speaker, message_id: str, text: str) -> None:
        """Add a piece of a message."""
        said, waiting, now = self._message(speaker, message_id), self._waiting, self.clock()
        if waiting is not None:
            if waiting.said is said and waiting.length < MOST_TEXT:
                waiting.texts.append(text)
                waiting.length += len(text)
                return
            self.send_text()
        if not self._paced or now >= self._free_at:
            self.piece(said, text)
            self._free_at = now + TEXT_SECONDS
        else:
            self._waiting = _Waiting(said, [text], len(text), self._free_at)

    def whole_text(self, speaker: Speaker, message_id: str, text: str) -> None:
        """Add a piece of a message that is not coalesced with others."""
        self.add(_chunk(speaker, message_id, text))

    def piece(self, said: DeltaStream, text: str) -> None:
        """Add a piece of a text, after the text that waits."""
        self.send_text()
        self._lines.append(OutboundMessage(said.line(text), part=said.part(text)))

    def send_text(self) -> None:
        """Add the text that waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.piece(waiting.said, "".join(waiting.texts))
            self._free_at = self.clock() + TEXT_SECONDS

    def streamed(self, update: Callable[[str], bytes], *, output: bool = False) -> DeltaStream:
        """Return a text that is sent in pieces. `update` makes the update of a piece."""
        return DeltaStream(lambda text: self._line(update(text)), output)

    def _message(self, speaker: Speaker, message_id: str) -> DeltaStream:
        """Return the streamed text of the message: the one before, unless a piece of another message came between."""
        if self._said is None or self._said[:2] != (speaker, message_id):
            said = self.streamed(lambda text: _chunk(speaker, message_id, text))
            self._said = speaker, message_id, said
        return self._said[2]

    def _line(self, update: bytes) -> bytes:
        return self._head + update + b"}}"


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
        self._running: dict[str, tuple[ToolCallView, RunningOutput]] = {}

    # --- the pace
    @property
    def due(self) -> float | None:
        """Return the time at which `flush` is needed next, by the clock; None if it is not needed."""
        times = [output.due for _, output in self._running.values() if output.news]
        return min(times if self._waiting is None else [*times, self._waiting.due], default=None)

    def flush(self) -> None:
        """Write the updates that are due."""
        now = self.clock()
        if self._waiting is not None and self._waiting.due <= now:
            self.send_text()
        for call, output in self._running.values():
            if output.news and output.due <= now:
                self._output(call, output, now)

    def finish(self) -> None:
        """Write all updates that wait, because the turn is over."""
        self.send_text()
        self._running.clear()

    # --- messages
    def block(self, speaker: Speaker, message_id: str, block: Json) -> None:
        """Write a part of a message that is not text: a content block."""
        self.add(MessageChunk(session_update=speaker.value, message_id=message_id, content=block).to_json())

    def notice(self, notice: Notice, message_id: str) -> None:
        """Write a notice; for clients that cannot show notices, a thought under that id."""
        if self._client.notices:
            shown = NoticeUpdate(
                severity=notice.severity.value, title=notice.text, description=notice.details
            )
            self.add(shown.to_json())
        elif not notice.passing:
            text = notice.text if notice.details is None else f"{notice.text}\n{notice.details}"
            head = "" if notice.severity is Severity.INFO else f"{notice.severity.capitalize()}: "
            self.whole_text(Speaker.THOUGHT, message_id, f"{head}{text}\n")

    # --- states
    def plan(self, steps: Iterable[PlanItemArg]) -> None:
        """Write the whole plan."""
        entries = tuple(PlanEntry(content=each.step, priority="medium", status=each.status) for each in steps)
        self.add(PlanUpdate(entries=entries).to_json(), state="plan")

    def usage(self, used: int, size: int) -> None:
        """Write how full the context window is."""
        self.add(UsageUpdate(used=used, size=size).to_json(), state="usage")

    def compaction(self, id: str, succeeded: bool | None = None) -> None:
        """Write that a compaction has begun, or whether it has succeeded."""
        status = _STATUS[succeeded]
        if succeeded is None and not self._live:
            return
        if self._client.compaction:
            self.add(CompactionUpdate(compaction_id=id, status=status).to_json())
        elif succeeded is None or not self._live:
            title = "Compact the conversation"
            call = SessionToolCall(tool_call_id=id, title=title, kind=ToolKind.THINK, status=status)
            self.add(call.to_json())
        else:
            self._call_update(id, status=status)

    # --- tool calls
    def call(self, call: ToolCallView) -> None:
        """Write the current state of a call that the client does not know yet."""
        if self._live:
            self._whole_call(call)

    def _whole_call(self, call: ToolCallView) -> None:
        display = self._displays and call.runs_command
        meta = {"terminal_info": {"terminal_id": call.id, "cwd": call.cwd}} if display else None
        content = (TerminalOfCall(terminal_id=call.id),) if display else call.content
        fields = call.fields(content, call.status)
        self.add(SessionToolCall(**fields, raw_output=call.raw_output, meta=meta).to_json())

    def call_runs(self, call: ToolCallView) -> None:
        """Write that the call goes on, after the user's approval."""
        self._call_update(call.id, status=call.status)
        if call.runs_command:
            self._output_of(call)

    def call_prints(self, call: ToolCallView, text: str) -> None:
        """Write output of a command, now or a little later."""
        now, output = self.clock(), self._output_of(call)
        output.take(text)
        if output.due <= now or (self._displays and sum(map(len, output.news)) > MOST_TEXT):
            self._output(call, output, now)

    def printed(self, call: ToolCallView) -> str:
        """Return the output of a running command, as far as it is kept."""
        running = self._running.get(call.id)
        return "" if running is None else plain_output(running[1].so_far())

    def call_ends(self, call: ToolCallView) -> None:
        """Write the final state of a call."""
        if not self._live:
            self._whole_call(call)
            return
        running = self._running.pop(call.id, None)
        content, meta = call.content, None
        if self._displays and call.runs_command:
            if running is not None:  # else nothing ran, and no output was displayed
                if running[1].news:
                    self.piece(running[1].said, "".join(running[1].news))
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

    def _output(self, call: ToolCallView, output: RunningOutput, now: float) -> None:
        if self._displays:
            self.piece(output.said, output.take_news(now + TEXT_SECONDS))
        else:
            output.take_news(now + OUTPUT_SECONDS)
            content = output_content(plain_output(output.so_far()))
            update = SessionToolCallUpdate(tool_call_id=call.id, content=content)
            self.add(update.to_json(), state=f"output of {call.id}")

    def _output_of(self, call: ToolCallView) -> RunningOutput:
        if call.id not in self._running:
            said = self.streamed(lambda text: _display(call.id, text), output=True)
            self._running[call.id] = call, RunningOutput(said)
        return self._running[call.id][1]

    def _call_update(self, id: str, **fields: Json) -> None:
        self.add(SessionToolCallUpdate(tool_call_id=id, **fields).to_json())


def _display(call_id: str, text: str) -> bytes:
    meta = {"terminal_output": {"terminal_id": call_id, "data": text}}
    return SessionToolCallUpdate(tool_call_id=call_id, meta=meta).to_json()
