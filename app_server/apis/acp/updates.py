"""Changes of a session as `session/update` of version 1 of the protocol. Pure, but for the clock that is handed in.

What comes often is paced: text that arrives within a few milliseconds is joined, and the output of a command is sent a
few times a second. Everything else is sent at once, behind what waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final, Literal, assert_never

import msgspec
from msgspec import Struct

from app_server.apis.acp.changes import (
    BlockPart,
    CallChanged,
    CallStep,
    Change,
    Compaction,
    DiffPart,
    MessageText,
    Notice,
    OutputPart,
    Part,
    PlanMade,
    Printed,
    Severity,
    ShownBlock,
    ShownCall,
    Speaker,
    TextPart,
    Titled,
    UsageChanged,
    fenced,
)
from app_server.apis.acp.client import AcpClient
from app_server.apis.acp.session_view import running_output
from protocol.acp import session
from protocol.acp import tool_calls as wire
from protocol.acp.tool_calls import ToolCallStatus, ToolKind
from protocol.base import Json
from protocol.names import SESSION_UPDATE
from protocol.structs import Written

TEXT_SECONDS: Final = 0.016
OUTPUT_SECONDS: Final = 0.25
MOST_TEXT: Final = 32 * 1024
"""Characters of one update, at least; text that waits is not joined beyond it."""

_CHUNKS: Final = {
    Speaker.USER: "user_message_chunk",
    Speaker.AGENT: "agent_message_chunk",
    Speaker.THOUGHT: "agent_thought_chunk",
}
_COMPACTION: Final[Mapping[bool | None, Literal["in_progress", "completed", "failed"]]] = {
    None: "in_progress",
    True: "completed",
    False: "failed",
}


class _Waiting(Struct):
    """Text that is not sent yet."""

    first: MessageText
    texts: list[str]
    length: int
    due: float


class _Output(Struct):
    """A running command: when its output may be sent next, and what is new since the last time."""

    call: ShownCall
    due: float
    news: list[str] = msgspec.field(default_factory=list)


class UpdateLines:
    def __init__(
        self,
        session_id: str,
        client: AcpClient,
        clock: Callable[[], float],
        *,
        replay: bool = False,
    ) -> None:
        """`clock` gives seconds. `replay`: what is sent is over, so nothing waits, and no display is opened."""
        params = f'"params":{{"sessionId":{json.dumps(session_id)},"update":'
        self._head = f'{{"method":{json.dumps(SESSION_UPDATE)},{params}'.encode()
        self._client, self._clock, self._paced = client, clock, not replay
        self._displays = client.terminal_output and not replay
        self._lines: list[bytes] = []
        self._waiting: _Waiting | None = None
        self._text_free_at = 0.0
        self._outputs: dict[str, _Output] = {}

    # --- in and out
    def render(self, changes: Iterable[Change]) -> list[bytes]:
        """The lines that are due now; others wait for `flush`."""
        for change in changes:
            if isinstance(change, MessageText):
                self._message_text(change)
            else:
                self._send_text()
                self._render(change)
        return self._taken()

    def flush(self) -> list[bytes]:
        """What has become due."""
        now = self._clock()
        if self._waiting is not None and self._waiting.due <= now:
            self._send_text()
        for output in self._outputs.values():
            if output.news and output.due <= now:
                self._send_output(output, now)
        return self._taken()

    def finish(self) -> list[bytes]:
        """Everything that waits: the turn is over."""
        self._send_text()
        self._outputs.clear()
        return self._taken()

    def send(self, update: Written) -> list[bytes]:
        """One update, behind what waits."""
        self._send_text()
        self._add(update.to_json())
        return self._taken()

    def send_message(self, message_id: str, text: str) -> list[bytes]:
        """One whole message of the agent."""
        self._send_text()
        self._chunk(Speaker.AGENT, message_id, text)
        return self._taken()

    @property
    def due(self) -> float | None:
        """When `flush` is needed next, by the clock."""
        times = [output.due for output in self._outputs.values() if output.news]
        if self._waiting is not None:
            times.append(self._waiting.due)
        return min(times, default=None)

    def _taken(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def _add(self, update: bytes) -> None:
        self._lines.append(self._head + update + b"}}")

    # --- text
    def _message_text(self, piece: MessageText) -> None:
        waiting, now = self._waiting, self._clock()
        if waiting is not None:
            same = (waiting.first.speaker, waiting.first.message_id) == (piece.speaker, piece.message_id)
            if same and waiting.length < MOST_TEXT:
                waiting.texts.append(piece.text)
                waiting.length += len(piece.text)
                return
            self._send_text()
        if not self._paced or now >= self._text_free_at:
            self._chunk(piece.speaker, piece.message_id, piece.text)
            self._text_free_at = now + TEXT_SECONDS
        else:
            self._waiting = _Waiting(piece, [piece.text], len(piece.text), self._text_free_at)

    def _send_text(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._chunk(waiting.first.speaker, waiting.first.message_id, "".join(waiting.texts))
            self._text_free_at = self._clock() + TEXT_SECONDS

    def _chunk(self, speaker: Speaker, message_id: str, text: str) -> None:
        head = f'{{"sessionUpdate":"{_CHUNKS[speaker]}","messageId":{json.dumps(message_id)},"content":'
        self._add(head.encode() + b'{"type":"text","text":' + _quoted(text) + b"}}")

    # --- everything else
    def _render(self, change: Change) -> None:
        match change:
            case CallChanged():
                self._call(change.call, change.step)
            case Printed():
                self._printed(change)
            case PlanMade():
                entries = tuple(
                    session.PlanEntry(content=each.text, status=each.status) for each in change.steps
                )
                self._add(session.PlanOfSession(entries=entries).to_json())
            case UsageChanged():
                self._add(session.UsageUpdate(used=change.used, size=change.size).to_json())
            case Notice():
                self._notice(change)
            case Compaction():
                self._compaction(change)
            case Titled():
                self._add(session.SessionInfoUpdate(title=change.title).to_json())
            case ShownBlock():
                block = {"content": change.block, "messageId": change.message_id}
                self._add(_json({"sessionUpdate": _CHUNKS[change.speaker], **block}))
            case MessageText():
                self._message_text(change)
            case _:
                assert_never(change)

    def _notice(self, notice: Notice) -> None:
        if self._client.notices:
            update = session.SessionNotice(
                severity=notice.severity.value, title=notice.text, description=notice.details
            )
            self._add(update.to_json())
        elif not notice.passing:
            text = notice.text if notice.details is None else f"{notice.text}\n{notice.details}"
            head = "" if notice.severity is Severity.INFO else f"{notice.severity.value.capitalize()}: "
            self._chunk(Speaker.THOUGHT, notice.message_id, head + text + "\n")

    def _compaction(self, change: Compaction) -> None:
        if self._client.compaction:
            update = session.CompactionUpdate(compaction_id=change.id, status=_COMPACTION[change.succeeded])
            self._add(update.to_json())
            return
        if change.succeeded is None or not self._paced:
            ended = _ended(change.succeeded)
            call = wire.SessionToolCall(
                tool_call_id=change.id,
                title="Compact the conversation",
                kind=ToolKind.THINK,
                status=ended or ToolCallStatus.IN_PROGRESS,
            )
            self._add(call.to_json())
        else:
            update_of_call = wire.SessionToolCallUpdate(
                tool_call_id=change.id, status=_ended(change.succeeded)
            )
            self._add(update_of_call.to_json())

    # --- tool calls
    def _call(self, call: ShownCall, step: CallStep) -> None:
        match step:
            case CallStep.ANNOUNCED:
                self._add(self._whole_call(call).to_json())
            case CallStep.RUNNING:
                status = wire.SessionToolCallUpdate(tool_call_id=call.id, status=call.status)
                self._add(status.to_json())
                if call.runs_command:
                    self._outputs.setdefault(call.id, _Output(call, 0.0))
            case CallStep.OVER:
                self._call_over(call)
            case _:
                assert_never(step)

    def _whole_call(self, call: ShownCall) -> wire.SessionToolCall:
        display = self._displays and call.runs_command
        meta = {"terminal_info": {"terminal_id": call.id, "cwd": call.cwd}} if display else None
        content: tuple[wire.ToolCallContent, ...] = content_of(call.parts)
        if display:
            content = (wire.TerminalOfCall(terminal_id=call.id),)
        return wire.SessionToolCall(
            **_fields(call), content=content or None, raw_output=call.raw_output, meta=meta
        )

    def _call_over(self, call: ShownCall) -> None:
        output = self._outputs.pop(call.id, None)
        content: tuple[wire.ToolCallContent, ...] | None = content_of(call.parts)
        meta: Json = None
        if self._displays and call.runs_command:
            if output is not None and output.news:
                self._display("".join(output.news), call)
            content = (wire.TerminalOfCall(terminal_id=call.id),)
            texts = tuple(part for part in call.parts if isinstance(part, TextPart))
            if output is None:  # nothing ran: what there is to say was never displayed
                content = content_of(call.parts)
            elif texts:
                content = (*content, *content_of(texts))
            exit_status = {"terminal_id": call.id, "exit_code": call.exit_code, "signal": None}
            meta = {"terminal_exit": exit_status}
        update = wire.SessionToolCallUpdate(
            tool_call_id=call.id,
            title=call.title if call.kind is ToolKind.FETCH else None,
            status=call.status,
            content=content,
            raw_output=call.raw_output,
            meta=meta,
        )
        self._add(update.to_json())

    def _printed(self, change: Printed) -> None:
        call, now = change.call, self._clock()
        output = self._outputs.setdefault(call.id, _Output(call, 0.0))
        if self._displays:
            output.news.append(change.text)
            if sum(map(len, output.news)) > MOST_TEXT:
                self._send_output(output, now)
                return
        else:
            output.news[:] = (" ",)
        if output.due <= now:
            self._send_output(output, now)

    def _send_output(self, output: _Output, now: float) -> None:
        news, output.news = "".join(output.news), []
        if self._displays:
            output.due = now + TEXT_SECONDS
            self._display(news, output.call)
            return
        output.due = now + OUTPUT_SECONDS
        update = wire.SessionToolCallUpdate(
            tool_call_id=output.call.id, content=content_of(running_output(output.call))
        )
        self._add(update.to_json())

    def _display(self, text: str, call: ShownCall) -> None:
        update = wire.SessionToolCallUpdate(
            tool_call_id=call.id, meta={"terminal_output": {"terminal_id": call.id, "data": text}}
        )
        self._add(update.to_json())

    # --- replay
    def replayed(self, changes: Iterable[Change]) -> Iterator[bytes]:
        """Changes of what is over: each call as it ended, in one update."""
        for change in changes:
            if isinstance(change, CallChanged):
                self._add(self._whole_call(change.call).to_json())
            else:
                self._render(change)
            yield from self._taken()


def content_of(parts: Iterable[Part]) -> tuple[wire.ToolCallContent, ...]:
    return tuple(_content(part) for part in parts)


def call_fields(
    call: ShownCall, parts: Iterable[Part], status: ToolCallStatus | None
) -> wire.SessionToolCallFields:
    """A call as a request for permission shows it."""
    shown = {**_fields(call), "status": status}
    return wire.SessionToolCallFields(**shown, content=content_of(parts) or None)


def _fields(call: ShownCall) -> dict[str, Json]:
    places = tuple(wire.ToolCallLocation(path=each.path, line=each.line) for each in call.places)
    return {
        "tool_call_id": call.id,
        "title": call.title,
        "name": call.name,
        "kind": call.kind,
        "status": call.status,
        "locations": places or None,
        "raw_input": call.raw_input,
    }


def _content(part: Part) -> wire.ToolCallContent:
    match part:
        case TextPart(text):
            return _text_content(text)
        case OutputPart(text):
            return _text_content(fenced(text, "console"))
        case DiffPart():
            return wire.DiffOfCall(
                path=part.path, old_text=part.old, new_text=part.new if part.new is not None else ""
            )
        case BlockPart(block):
            return wire.ContentOfCall(content=block)
        case _:
            assert_never(part)


def _text_content(text: str) -> wire.ContentOfCall:
    return wire.ContentOfCall(content={"type": "text", "text": text})


def _ended(succeeded: bool | None) -> ToolCallStatus | None:
    if succeeded is None:
        return None
    return ToolCallStatus.COMPLETED if succeeded else ToolCallStatus.FAILED


def _json(value: Json) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def _quoted(text: str) -> bytes:
    try:
        return encode_basestring(text).encode()
    except UnicodeEncodeError:
        return encode_basestring_ascii(text).encode()
