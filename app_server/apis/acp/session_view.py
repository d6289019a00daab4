"""The state of a session's turns: its messages, tool calls, plan and usage, and what of it is news to a client. Pure.

It is the same for every version of the protocol. A call is announced once, goes on and ends once, and none is open when
its turn ends; what comes later from a command that outlives its turn is sent with the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from app_server.apis.acp import calls
from app_server.apis.acp.changes import (
    CallChanged,
    CallStep,
    Change,
    Compaction,
    MessageText,
    Notice,
    OutputPart,
    PlanLine,
    PlanMade,
    Printed,
    Severity,
    ShownCall,
    Speaker,
    TextPart,
    UsageChanged,
    plain_output,
)
from app_server.apis.open_items import OpenItem, OpenItems
from app_server.core.rollout.turn_fold import ItemIds
from app_server.core.session.review_texts import findings_block
from protocol.acp.tool_calls import ToolCallStatus
from protocol.engine import events, items
from protocol.engine.events import SessionEvent
from protocol.events import notices
from protocol.events.review import ReviewOutputEvent
from protocol.events.tools import PlanUpdateEvent, StepStatus
from protocol.events.turn import TokenCountEvent, TokenUsageInfo
from protocol.structs import replace

NO_FINDINGS: Final = "The review found nothing."


def review_text(output: ReviewOutputEvent) -> str:
    text = output.overall_explanation.strip()
    if output.findings:
        text = f"{text}\n{findings_block(output.findings)}".strip()
    return text or NO_FINDINGS


KEPT_OUTPUT: Final = 32 * 1024
"""Characters of a running command's output that are kept: its end."""
MOST_HELD: Final = 50
"""Notices that wait for the next turn."""
BETWEEN_PARTS: Final = "\n\n"
ASSUMED_WINDOW: Final = 272_000
"""For a model whose context window is not known: clients show how full it is."""

_STEPS: Final[Mapping[StepStatus, Literal["pending", "in_progress", "completed"]]] = {
    StepStatus.PENDING: "pending",
    StepStatus.IN_PROGRESS: "in_progress",
    StepStatus.COMPLETED: "completed",
}


class ShownMessage(Struct):
    speaker: Speaker
    part: tuple[str, int] | None = None
    """Of reasoning: which part of it was said last."""


class OpenCall(Struct):
    call: ShownCall
    over_for_client: bool = False
    """The command goes on, and its turn has ended."""


SessionItem = OpenItem[ShownMessage | OpenCall | None]
"""None: a compaction."""


class SessionView:
    def __init__(self, ids: ItemIds) -> None:
        """`ids`: those that items of the session have already."""
        self._ids = ids
        self._open = OpenItems[ShownMessage | OpenCall | None](ids)
        self._review: ShownCall | None = None
        self._held: list[Notice] = []
        self.turn: str | None = None
        """The turn that runs."""
        self.usage: UsageChanged | None = None
        self.window: int | None = None

    # --- looking
    def call_asked_about(self, turn_id: str | None, engine_id: str) -> ShownCall | None:
        found = self._open.latest(turn_id, engine_id)
        return found.shown.call if found is not None and isinstance(found.shown, OpenCall) else None

    def call_of_server(self, server: str) -> ShownCall | None:
        """The call of that MCP server's tool that began last. Calls of a turn run one after another."""
        for opened in reversed(self._open.all()):
            match opened:
                case OpenItem(item=items.McpToolCall(invocation=called), shown=OpenCall(call=call)):
                    if called.server == server:
                        return call
                case _:
                    pass
        return None

    # --- events
    def take(self, event: SessionEvent) -> Iterator[Change]:  # noqa: C901 - one case for each kind
        inner, turn = event.event, event.turn_id or ""
        match inner:
            case events.AgentMessageDelta():
                yield from self._delta(turn, inner.item_id, inner.delta, None)
            case events.ReasoningSummaryDelta():
                yield from self._delta(turn, inner.item_id, inner.delta, ("summary", inner.index))
            case events.ReasoningTextDelta():
                yield from self._delta(turn, inner.item_id, inner.delta, ("content", inner.index))
            case events.CommandOutput():
                yield from self._output(turn, inner)
            case events.ItemStarted():
                yield from self._started(turn, inner)
            case events.ItemCompleted():
                yield from self._completed(turn, inner)
            case events.CommandRunning(item_id=id) | events.PatchWriting(item=items.FileChange(id=id)):
                yield from self._running(turn, id)
            case events.TurnStarted():
                yield from self._turn_started(turn, inner)
            case events.TurnEnded():
                yield from self._turn_ended(turn)
            case events.AttemptFailed():
                text = f"Reconnecting… {inner.attempt}/{inner.attempts}"
                yield Notice(Severity.WARNING, text, inner.error.message, passing=True)
            case TokenCountEvent():
                yield from self._tokens(inner)
            case PlanUpdateEvent():
                yield plan_made(inner)
            case notices.WarningEvent() | notices.ErrorEvent():
                yield from self._notice(Notice(Severity.WARNING, inner.message))
            case events.McpServersSettled(failures=failures):
                for message in failures:
                    yield from self._notice(Notice(Severity.WARNING, message))
            case notices.DeprecationNoticeEvent():
                yield from self._notice(Notice(Severity.WARNING, inner.summary, inner.details))
            case notices.UndoCompletedEvent():
                text = inner.message or ("The files are as before." if inner.success else "Undo failed.")
                yield MessageText(Speaker.AGENT, self._ids.begin_and_end(f"undo-{turn}"), text)
            case _:
                pass

    # --- messages
    def _delta(self, turn: str, id: str, text: str, part: tuple[str, int] | None) -> Iterator[Change]:
        opened = self._open.get(turn, id)
        if opened is None or not isinstance(opened.shown, ShownMessage) or not text:
            return
        shown = opened.shown
        if part is not None and shown.part not in (None, part):
            yield _message_text(opened, shown, BETWEEN_PARTS)
        shown.part = part
        yield _message_text(opened, shown, text)

    def _whole(self, turn: str, item: items.Item, text: str) -> Iterator[Change]:
        """The end of a message: what was not said in pieces."""
        opened = self._open.get(turn, item.id)
        if opened is None or not isinstance(opened.shown, ShownMessage):
            return
        self._open.end(opened)
        sent = "".join(opened.deltas)
        if text.startswith(sent) and len(text) > len(sent):
            yield _message_text(opened, opened.shown, text[len(sent) :])

    # --- items
    def _started(self, turn: str, event: events.ItemStarted) -> Iterator[Change]:
        item, at_ms = event.item, event.at_ms
        before = self._open.get(turn, item.id)
        if before is not None:  # two items under one id
            yield from self._cut(before)
        match item:
            case items.AgentMessage() | items.Plan():
                self._open.begin(turn, item, at_ms, lambda _: ShownMessage(Speaker.AGENT))
            case items.Reasoning():
                self._open.begin(turn, item, at_ms, lambda _: ShownMessage(Speaker.THOUGHT))
            case items.ContextCompaction():
                yield Compaction(self._open.begin(turn, item, at_ms, lambda _: None).item.id)
            case items.UserMessage() | items.ExitedReview():
                self._unique(item.id)
            case items.EnteredReview():
                self._review = _announced(item, self._unique(item.id))
                yield CallChanged(self._review, CallStep.ANNOUNCED)
            case _:
                opened = OpenCall(_announced(item, item.id))
                opened.call.id = self._open.begin(turn, item, at_ms, lambda _: opened).item.id
                yield CallChanged(opened.call, CallStep.ANNOUNCED)

    def _cut(self, opened: SessionItem) -> Iterator[Change]:
        """The end of an item that did not come to its own."""
        self._open.end(opened)
        match opened.shown:
            case OpenCall(call=call, over_for_client=False):
                call.status = ToolCallStatus.FAILED
                call.parts = running_output(call) if call.runs_command else call.parts
                yield CallChanged(call, CallStep.OVER)
            case None:
                yield Compaction(opened.item.id, succeeded=False)
            case _:
                pass

    def _completed(self, turn: str, event: events.ItemCompleted) -> Iterator[Change]:
        item = event.item
        match item:
            case items.AgentMessage() | items.Plan():
                yield from self._whole(turn, item, item.text)
            case items.Reasoning():
                yield from self._whole(turn, item, reasoning_text(item))
            case items.ContextCompaction():
                opened = self._open.get(turn, item.id)
                if opened is not None and opened.shown is None:
                    self._open.end(opened)
                    yield Compaction(opened.item.id, not event.cut)
            case items.ExitedReview():
                yield from self._review_over(item)
            case items.UserMessage() | items.EnteredReview():
                pass
            case _:
                yield from self._call_over(turn, item, cut=event.cut)

    def _review_over(self, item: items.ExitedReview) -> Iterator[Change]:
        review, self._review = self._review, None
        if review is not None:
            done = item.output is not None
            review.status = ToolCallStatus.COMPLETED if done else ToolCallStatus.FAILED
            yield CallChanged(review, CallStep.OVER)
        if item.output is not None:
            yield MessageText(Speaker.AGENT, f"{item.id}-findings", review_text(item.output))

    def _call_over(self, turn: str, item: calls.Item, *, cut: bool) -> Iterator[Change]:
        opened = self._open.get(turn, item.id)
        if opened is None or not isinstance(opened.shown, OpenCall):
            return
        self._open.end(opened)
        call = opened.shown.call
        calls.end(call, item, cut=cut)
        if not opened.shown.over_for_client:
            yield CallChanged(call, CallStep.OVER)
        elif isinstance(item, items.CommandExecution):
            code = "" if item.exit_code is None else f" with exit code {item.exit_code}"
            ended = f"The command `{call.title}`, which went on in the background, has ended{code}."
            yield from self._notice(Notice(Severity.INFO, ended))

    def _running(self, turn: str, engine_id: str) -> Iterator[Change]:
        call = self.call_asked_about(turn, engine_id)
        if call is not None and call.status is ToolCallStatus.PENDING:
            call.status = ToolCallStatus.IN_PROGRESS
            yield CallChanged(call, CallStep.RUNNING)

    def _output(self, turn: str, event: events.CommandOutput) -> Iterator[Change]:
        opened = self._open.latest(turn, event.item_id)
        if opened is None or not isinstance(opened.shown, OpenCall):
            return
        call = opened.shown.call
        if opened.shown.over_for_client or not call.runs_command:
            return
        text = opened.output(event.stream, event.chunk)
        if not text:
            return
        call.printed.append(text)
        if len(call.printed) > 1 and sum(map(len, call.printed)) > 2 * KEPT_OUTPUT:
            call.printed[:] = ["".join(call.printed)[-KEPT_OUTPUT:]]
        yield Printed(call, text)

    def _unique(self, id: str) -> str:
        return self._ids.begin_and_end(id)

    # --- turns
    def _turn_started(self, turn: str, event: events.TurnStarted) -> Iterator[Change]:
        self.turn = turn
        self.window = event.model_context_window or self.window
        held, self._held = self._held, []
        for notice in held:
            yield from self._notice(notice)

    def _turn_ended(self, turn: str) -> Iterator[Change]:
        """Closes what is open. The engine ends all items of a turn but for commands that go on."""
        for opened in self._open.all():
            match opened.shown:
                case OpenCall(over_for_client=True):
                    pass
                case OpenCall(call=call) if isinstance(opened.item, items.CommandExecution):
                    opened.shown.over_for_client = True
                    call.status = ToolCallStatus.COMPLETED
                    call.parts = (*running_output(call), TextPart("The command goes on in the background."))
                    yield CallChanged(call, CallStep.OVER)
                case _:
                    yield from self._cut(opened)
        if self._review is not None:
            self._review.status = ToolCallStatus.FAILED
            yield CallChanged(self._review, CallStep.OVER)
            self._review = None
        self.turn = None

    # --- news
    def _tokens(self, event: TokenCountEvent) -> Iterator[Change]:
        if event.info is None:
            return
        usage = usage_changed(event.info, self.window)
        if usage != self.usage:
            self.usage = usage
            yield usage

    def _notice(self, notice: Notice) -> Iterator[Change]:
        """Outside of a turn it waits for the next one, for clients take no message then."""
        if self.turn is not None:
            yield replace(notice, message_id=self._unique(f"notice-{self.turn}"))
        elif len(self._held) < MOST_HELD:
            self._held.append(notice)


def _message_text(opened: SessionItem, shown: ShownMessage, text: str) -> MessageText:
    opened.deltas.append(text)
    return MessageText(shown.speaker, opened.item.id, text)


def _announced(item: calls.Item, id: str) -> ShownCall:
    call = calls.begun(item, id)
    if calls.starts_at_once(item):
        call.status = ToolCallStatus.IN_PROGRESS
    return call


def plan_made(event: PlanUpdateEvent) -> PlanMade:
    return PlanMade(tuple(PlanLine(each.step, _STEPS[each.status]) for each in event.plan))


def usage_changed(info: TokenUsageInfo, window: int | None) -> UsageChanged:
    size = info.model_context_window or window or ASSUMED_WINDOW
    return UsageChanged(max(info.last_token_usage.total_tokens, 0), size)


def reasoning_text(item: items.Reasoning) -> str:
    return BETWEEN_PARTS.join(part for part in (*item.summary, *item.content) if part)


def running_output(call: ShownCall) -> tuple[OutputPart, ...]:
    """What a command has printed so far, as far as it is kept."""
    text = plain_output("".join(call.printed)[-KEPT_OUTPUT:])
    return (OutputPart(text),) if text.strip() else ()
