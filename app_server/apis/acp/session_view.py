"""The state of a session's turns: its messages, tool calls, plan and usage, and what of it is news to a client. Pure.

It is the same for every version of the protocol. A call is announced once, goes on and ends once, and none is open when
its turn ends; what comes later from a command that outlives its turn is told with the next turn.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Final, Literal

from app_server.apis.acp import calls
from app_server.apis.acp.changes import (
    CallChanged,
    CallStep,
    Change,
    Compaction,
    OutputPart,
    PlanLine,
    PlanMade,
    Printed,
    Said,
    Severity,
    ShownCall,
    Speaker,
    TextPart,
    Told,
    UsageChanged,
)
from app_server.apis.acp.review import review_text
from app_server.apis.acp.text import plain_output
from app_server.core.rollout.turn_fold import ItemIds
from protocol.acp.tool_calls import ToolCallStatus
from protocol.engine import events, items
from protocol.engine.events import SessionEvent
from protocol.events import notices
from protocol.events.tokens import TokenCountEvent, TokenUsageInfo
from protocol.events.tools import PlanUpdateEvent, StepStatus
from protocol.records import dataclass

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


@dataclass(slots=True)
class OpenMessage:
    id: str
    speaker: Speaker
    said: list[str] = field(default_factory=list)
    part: tuple[str, int] | None = None
    """Of reasoning: which part of it was said last."""


@dataclass(slots=True)
class OpenCall:
    turn_id: str
    engine_id: str
    item: calls.Item
    call: ShownCall
    over_for_client: bool = False
    """The command goes on, and its turn has ended."""
    _decoders: dict[events.OutputStream, codecs.IncrementalDecoder] = field(default_factory=dict)

    def decode(self, event: events.CommandOutput) -> str:
        decoder = self._decoders.get(event.stream)
        if decoder is None:
            decoder = self._decoders[event.stream] = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(event.chunk)


class SessionView:
    def __init__(self, ids: ItemIds) -> None:
        """`ids`: those that items of the session have already."""
        self._ids = ids
        self._messages: dict[tuple[str, str], OpenMessage] = {}
        self._calls: dict[tuple[str, str], OpenCall] = {}
        self._compactions: dict[tuple[str, str], str] = {}
        self._review: ShownCall | None = None
        self._held: list[Told] = []
        self.turn: str | None = None
        """The turn that runs."""
        self.usage: UsageChanged | None = None
        self.window: int | None = None

    # --- looking
    def call_asked_about(self, turn_id: str | None, engine_id: str) -> ShownCall | None:
        found = self._find(turn_id or "", engine_id)
        return None if found is None else found.call

    def call_of_server(self, server: str) -> ShownCall | None:
        """The call of that MCP server's tool that began last. Calls of a turn run one after another."""
        for opened in reversed(self._calls.values()):
            if isinstance(opened.item, items.McpToolCall) and opened.item.invocation.server == server:
                return opened.call
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
                yield from self._started(turn, inner.item)
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
                yield Told(Severity.WARNING, text, inner.error.message, passing=True)
            case TokenCountEvent():
                yield from self._tokens(inner)
            case PlanUpdateEvent():
                yield plan_made(inner)
            case notices.WarningEvent() | notices.ErrorEvent():
                yield from self._tell(Told(Severity.WARNING, inner.message))
            case events.McpServersSettled(failures=failures):
                for message in failures:
                    yield from self._tell(Told(Severity.WARNING, message))
            case notices.DeprecationNoticeEvent():
                yield from self._tell(Told(Severity.WARNING, inner.summary, inner.details))
            case notices.UndoCompletedEvent():
                text = inner.message or ("The files are as before." if inner.success else "Undo failed.")
                yield Said(Speaker.AGENT, self._ids.begin_and_end(f"undo-{turn}"), text)
            case _:
                pass

    # --- messages
    def _delta(self, turn: str, id: str, text: str, part: tuple[str, int] | None) -> Iterator[Change]:
        message = self._messages.get((turn, id))
        if message is None or not text:
            return
        if part is not None and message.part not in (None, part):
            yield self._say(message, BETWEEN_PARTS)
        message.part = part
        yield self._say(message, text)

    def _say(self, message: OpenMessage, text: str) -> Said:
        message.said.append(text)
        return Said(message.speaker, message.id, text)

    def _whole(self, turn: str, item: items.Item, text: str) -> Iterator[Change]:
        """The end of a message: what was not said in pieces."""
        message = self._messages.pop((turn, item.id), None)
        if message is None:
            return
        said = "".join(message.said)
        if text.startswith(said) and len(text) > len(said):
            yield Said(message.speaker, message.id, text[len(said) :])

    # --- items
    def _started(self, turn: str, item: items.Item) -> Iterator[Change]:
        match item:
            case items.AgentMessage() | items.Plan():
                self._messages[turn, item.id] = OpenMessage(self._unique(item.id), Speaker.AGENT)
            case items.Reasoning():
                self._messages[turn, item.id] = OpenMessage(self._unique(item.id), Speaker.THOUGHT)
            case items.UserMessage():
                self._unique(item.id)
            case items.ContextCompaction():
                id = self._compactions[turn, item.id] = self._unique(item.id)
                yield Compaction(id)
            case items.ExitedReview():
                self._unique(item.id)
            case _:
                before = self._calls.pop((turn, item.id), None)
                if before is not None and not before.over_for_client:  # two calls under one id
                    calls.end(before.call, before.item, cut=True)
                    yield CallChanged(before.call, CallStep.OVER)
                yield from self._announce(turn, item)

    def _announce(self, turn: str, item: calls.Item) -> Iterator[Change]:
        call = calls.begun(item, self._unique(item.id))
        if calls.starts_at_once(item):
            call.status = ToolCallStatus.IN_PROGRESS
        if isinstance(item, items.EnteredReview):
            self._review = call
        else:
            self._calls[turn, item.id] = OpenCall(turn, item.id, item, call)
        yield CallChanged(call, CallStep.ANNOUNCED)

    def _completed(self, turn: str, event: events.ItemCompleted) -> Iterator[Change]:
        item = event.item
        match item:
            case items.AgentMessage() | items.Plan():
                yield from self._whole(turn, item, item.text)
            case items.Reasoning():
                yield from self._whole(turn, item, reasoning_text(item))
            case items.ContextCompaction():
                id = self._compactions.pop((turn, item.id), None)
                if id is not None:
                    yield Compaction(id, not event.cut)
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
            yield Said(Speaker.AGENT, f"{item.id}-findings", review_text(item.output))

    def _call_over(self, turn: str, item: calls.Item, *, cut: bool) -> Iterator[Change]:
        opened = self._calls.pop((turn, item.id), None)
        if opened is None:
            return
        calls.end(opened.call, item, cut=cut)
        if not opened.over_for_client:
            yield CallChanged(opened.call, CallStep.OVER)
        elif isinstance(item, items.CommandExecution):
            code = "" if item.exit_code is None else f" with exit code {item.exit_code}"
            ended = f"The command `{opened.call.title}`, which went on in the background, has ended{code}."
            yield from self._tell(Told(Severity.INFO, ended))

    def _running(self, turn: str, engine_id: str) -> Iterator[Change]:
        opened = self._find(turn, engine_id)
        if opened is not None and opened.call.status is ToolCallStatus.PENDING:
            opened.call.status = ToolCallStatus.IN_PROGRESS
            yield CallChanged(opened.call, CallStep.RUNNING)

    def _output(self, turn: str, event: events.CommandOutput) -> Iterator[Change]:
        opened = self._find(turn, event.item_id)
        if opened is None or opened.over_for_client or not opened.call.runs_command:
            return
        text = opened.decode(event)
        if not text:
            return
        printed = opened.call.printed
        printed.append(text)
        if len(printed) > 1 and sum(map(len, printed)) > 2 * KEPT_OUTPUT:
            printed[:] = ["".join(printed)[-KEPT_OUTPUT:]]
        yield Printed(opened.call, text)

    def _find(self, turn: str, engine_id: str) -> OpenCall | None:
        exact = self._calls.get((turn, engine_id))
        if exact is not None:
            return exact
        return next((each for each in reversed(self._calls.values()) if each.engine_id == engine_id), None)

    def _unique(self, id: str) -> str:
        return self._ids.begin_and_end(id)

    # --- turns
    def _turn_started(self, turn: str, event: events.TurnStarted) -> Iterator[Change]:
        self.turn = turn
        self.window = event.model_context_window or self.window
        held, self._held = self._held, []
        for told in held:
            yield from self._tell(told)

    def _turn_ended(self, turn: str) -> Iterator[Change]:
        """Closes what is open. The engine ends all items of a turn but for commands that go on."""
        for opened in [each for each in self._calls.values() if not each.over_for_client]:
            call = opened.call
            goes_on = isinstance(opened.item, items.CommandExecution)
            call.status = ToolCallStatus.COMPLETED if goes_on else ToolCallStatus.FAILED
            if goes_on:
                opened.over_for_client = True
                note = TextPart("The command goes on in the background.")
                call.parts = (*running_output(call), note)
            yield CallChanged(call, CallStep.OVER)
        if self._review is not None:
            self._review.status = ToolCallStatus.FAILED
            yield CallChanged(self._review, CallStep.OVER)
            self._review = None
        for id in self._compactions.values():
            yield Compaction(id, succeeded=False)
        self._compactions.clear()
        self._messages.clear()
        self.turn = None

    # --- news
    def _tokens(self, event: TokenCountEvent) -> Iterator[Change]:
        if event.info is None:
            return
        usage = usage_changed(event.info, self.window)
        if usage != self.usage:
            self.usage = usage
            yield usage

    def _tell(self, told: Told) -> Iterator[Change]:
        """Outside of a turn it waits for the next one, for clients take no message then."""
        if self.turn is not None:
            yield replace(told, message_id=self._unique(f"notice-{self.turn}"))
        elif len(self._held) < MOST_HELD:
            self._held.append(told)


def plan_made(event: PlanUpdateEvent) -> PlanMade:
    return PlanMade(tuple(PlanLine(each.step, _STEPS[each.status]) for each in event.plan))


def usage_changed(info: TokenUsageInfo, window: int | None) -> UsageChanged:
    size = info.model_context_window or window or ASSUMED_WINDOW
    return UsageChanged(max(info.last_token_usage.total_tokens, 0), size)


def reasoning_text(item: items.Reasoning) -> str:
    content = item.content if item.show_content else ()
    return BETWEEN_PARTS.join(part for part in (*item.summary, *content) if part)


def running_output(call: ShownCall) -> tuple[OutputPart, ...]:
    """What a command has printed so far, as far as it is kept."""
    text = plain_output("".join(call.printed)[-KEPT_OUTPUT:])
    return (OutputPart(text),) if text.strip() else ()
