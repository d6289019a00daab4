"""Conversion of the events of a session into updates for its client. Pure.

`SessionFold` converts messages, tool calls, reviews and compactions; `SessionNotices` converts everything besides
items:
notices, the plan, and how full the context is. A call is announced once, goes on and ends once, and no call is open
when its turn ends. Later output of a command that outlives its turn is sent with the next turn.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from app_server.engine.session.review_texts import outcome
from app_server.engine.storage.turn_fold import ItemIds
from app_server.server.apis.acp import tool_call_views
from app_server.server.apis.acp.tool_call_views import ToolCallView, text_content
from app_server.server.apis.acp.updates import Notice, SessionUpdates, Severity, Speaker
from app_server.server.apis.partial_items import ItemInProgress, ItemsInProgress
from app_server_protocol.acp.tool_calls import ToolCallStatus
from app_server_protocol.engine import events, items
from app_server_protocol.engine.events import EngineEvent, SessionEvent
from app_server_protocol.engine.notices import (
    CustomPromptsListed,
    DeprecationNotice,
    ErrorNotice,
    HistoryEntryFound,
    HistoryItemRecorded,
    McpToolsListed,
    PlanUpdated,
    ProgressNotice,
    SessionClosed,
    TokenUsageUpdated,
    TurnDiffUpdated,
    UndoCompleted,
    UndoStarted,
    WarningNotice,
)
from app_server_protocol.engine.questions import (
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallQuestion,
    PatchApprovalQuestion,
    ToolCallQuestion,
    UserInputQuestion,
)
from app_server_protocol.engine.token_usage import TokenUsageInfo

MOST_HELD: Final = 50
"""Maximum number of notices that are queued for the next turn."""
ASSUMED_WINDOW: Final = 272_000
"""Context window that is assumed for a model whose window is not known, in tokens: clients show how full it is."""


def context_use(info: TokenUsageInfo, window: int | None) -> tuple[int, int]:
    """Return the number of tokens in the context and the size of the context window. `window` is the size if `info`
    names none.
    """
    size = info.model_context_window or window or ASSUMED_WINDOW
    return max(info.last_token_usage.total_tokens, 0), size


class SessionNotices:
    """Notices and usage of a session. Notices are queued while no turn runs, because clients accept none then."""

    def __init__(self, updates: SessionUpdates, ids: ItemIds) -> None:
        """Begin without usage. `ids` are the ids that messages of the session have already."""
        self._updates, self._ids = updates, ids
        self._turn: str | None = None
        self._window: int | None = None
        self._held: list[Notice] = []
        self.usage: tuple[int, int] | None = None
        """Number of tokens in the context and size of the context window; None if they are not known yet."""

    def turn_started(self, turn: str, window: int | None) -> None:
        """Write the notices that were queued for this turn."""
        self._turn, self._window = turn, window or self._window
        held, self._held = self._held, []
        for notice in held:
            self.notice(notice)

    def turn_ended(self) -> None:
        """Queue notices from now on."""
        self._turn = None

    def notice(self, notice: Notice) -> None:
        """Write a notice now, or with the next turn."""
        if self._turn is not None:
            self._updates.notice(notice, self._ids.reserve(f"notice-{self._turn}"))
        elif len(self._held) < MOST_HELD:
            self._held.append(notice)

    def take(self, event: EngineEvent) -> None:
        """Write an event that belongs to no item."""
        match event:
            case events.AttemptFailed():
                text = f"Reconnecting… {event.attempt}/{event.attempts}"
                self._updates.notice(Notice(text, details=event.error.message, passing=True), "")
            case TokenUsageUpdated(info=TokenUsageInfo() as info):
                usage = context_use(info, self._window)
                if usage != self.usage:
                    self.usage = usage
                    self._updates.usage(*usage)
            case PlanUpdated():
                self._updates.plan(event.plan)
            case WarningNotice() | ErrorNotice():
                self.notice(Notice(event.message))
            case events.McpServersSettled(failures=failures):
                for message in failures:
                    self.notice(Notice(message))
            case DeprecationNotice():
                self.notice(Notice(event.summary, details=event.details))
            case (
                events.AgentMessageDelta()
                | events.ReasoningSummaryDelta()
                | events.ReasoningTextDelta()
                | events.CommandOutput()
                | events.ItemStarted()
                | events.ItemCompleted()
                | events.CommandRunning()
                | events.PatchWriting()
                | events.TurnStarted()
                | events.TurnEnded()
                | UndoCompleted()
            ):
                pass  # `SessionFold` writes them
            case (
                events.ReasoningSummaryPart()
                | events.TerminalInput()
                | events.SettingsChanged()
                | events.ModelRerouted()
                | events.McpServerStateChanged()
                | events.GoalUpdated()
                | events.GoalCleared()
                | TokenUsageUpdated()
                | HistoryItemRecorded()
                | TurnDiffUpdated()
                | ProgressNotice()
                | SessionClosed()
                | UndoStarted()
                | HistoryEntryFound()
                | CustomPromptsListed()
                | McpToolsListed()
            ):
                pass  # editors have no place for them, or `AcpSession` sends them
            case (
                CommandApprovalQuestion()
                | PatchApprovalQuestion()
                | ElicitationQuestion()
                | ToolCallQuestion()
                | UserInputQuestion()
                | McpCallQuestion()
            ):
                pass  # `SessionAdapter.question` makes requests of them


NO_FINDINGS: Final = "The review found nothing."
BETWEEN_PARTS: Final = "\n\n"


def reasoning_text(item: items.Reasoning) -> str:
    """Return the parts of a thought as one text."""
    return BETWEEN_PARTS.join(part for part in (*item.summary, *item.content) if part)


class ShownMessage(Struct):
    speaker: Speaker
    part: tuple[str, int] | None = None
    """Part of the reasoning that was written last; None for items other than reasoning."""


class OpenCall(Struct):
    call: ToolCallView
    over_for_client: bool = False
    """Whether the turn has ended while the command goes on."""


SessionItem = ItemInProgress[ShownMessage | OpenCall | None]
"""An open item of a session; its shown state is None for a compaction."""


class SessionFold:
    """The open items of a session, with what was written of each so far."""

    def __init__(self, updates: SessionUpdates, news: SessionNotices, ids: ItemIds) -> None:
        """Begin without items. `ids` are the ids that items of the session have already."""
        self._updates, self._news, self._ids = updates, news, ids
        self._open = ItemsInProgress[ShownMessage | OpenCall | None](ids)
        self._review: ToolCallView | None = None

    # --- looking up
    def call_asked_about(self, turn_id: str | None, engine_id: str) -> ToolCallView | None:
        """Return the call of the item that a question is about; the item may have begun in an earlier turn."""
        found = self._open.latest(turn_id, engine_id)
        return found.shown.call if found is not None and isinstance(found.shown, OpenCall) else None

    # --- events
    def take(self, event: SessionEvent) -> None:
        """Write what an event changes for the client."""
        inner, turn = event.event, event.turn_id or ""
        match inner:
            case events.AgentMessageDelta():
                self._delta(turn, inner.item_id, inner.delta, None)
            case events.ReasoningSummaryDelta():
                self._delta(turn, inner.item_id, inner.delta, ("summary", inner.index))
            case events.ReasoningTextDelta():
                self._delta(turn, inner.item_id, inner.delta, ("content", inner.index))
            case events.CommandOutput():
                self._output(turn, inner)
            case events.ItemStarted():
                self._started(turn, inner)
            case events.ItemCompleted():
                self._completed(turn, inner)
            case events.CommandRunning(item_id=id) | events.PatchWriting(item=items.FileChange(id=id)):
                self._runs(turn, id)
            case events.TurnStarted():
                self._news.turn_started(turn, inner.model_context_window)
            case events.TurnEnded():
                self._turn_ended()
            case UndoCompleted():
                text = inner.message or ("The files are as before." if inner.success else "Undo failed.")
                self._updates.text(Speaker.AGENT, self._ids.reserve(f"undo-{turn}"), text)
            case _:
                self._news.take(inner)

    # --- messages
    def _delta(self, turn: str, id: str, text: str, part: tuple[str, int] | None) -> None:
        opened = self._open.get(turn, id)
        if opened is None or not isinstance(opened.shown, ShownMessage) or not text:
            return
        shown = opened.shown
        if part is not None and shown.part not in (None, part):
            self._say(opened, shown, BETWEEN_PARTS)
        shown.part = part
        self._say(opened, shown, text)

    def _whole(self, turn: str, item: items.Item, text: str) -> None:
        """End a message, and write the part of its text that was not streamed."""
        opened = self._open.get(turn, item.id)
        if opened is None or not isinstance(opened.shown, ShownMessage):
            return
        self._open.end(opened)
        sent = "".join(opened.deltas)
        if text.startswith(sent) and len(text) > len(sent):
            self._say(opened, opened.shown, text[len(sent) :])

    def _say(self, opened: SessionItem, shown: ShownMessage, text: str) -> None:
        opened.deltas.append(text)
        self._updates.text(shown.speaker, opened.item.id, text)

    # --- items
    def _started(self, turn: str, event: events.ItemStarted) -> None:
        item, at_ms = event.item, event.at_ms
        before = self._open.get(turn, item.id)
        if before is not None:  # two items under the same id
            self._cut(before)
        match item:
            case items.AgentMessage() | items.Plan():
                self._open.begin(turn, item, at_ms, lambda _: ShownMessage(Speaker.AGENT))
            case items.Reasoning():
                self._open.begin(turn, item, at_ms, lambda _: ShownMessage(Speaker.THOUGHT))
            case items.ContextCompaction():
                self._updates.compaction(self._open.begin(turn, item, at_ms, lambda _: None).item.id)
            case items.UserMessage() | items.ExitedReview():
                self._ids.reserve(item.id)
            case items.EnteredReview():
                self._review = tool_call_views.begun(item, self._ids.reserve(item.id))
                self._updates.call(self._review)
            case _:
                opened = OpenCall(tool_call_views.begun(item, item.id))
                opened.call.id = self._open.begin(turn, item, at_ms, lambda _: opened).item.id
                self._updates.call(opened.call)

    def _cut(self, opened: SessionItem) -> None:
        """End an item that was interrupted before its own end."""
        self._open.end(opened)
        match opened.shown:
            case OpenCall(call=call, over_for_client=False):
                call.output = self._updates.printed(call)
                self._end(call, succeeded=False)
            case None:
                self._updates.compaction(opened.item.id, succeeded=False)
            case _:
                pass

    def _completed(self, turn: str, event: events.ItemCompleted) -> None:
        item = event.item
        match item:
            case items.AgentMessage() | items.Plan():
                self._whole(turn, item, item.text)
            case items.Reasoning():
                self._whole(turn, item, reasoning_text(item))
            case items.ContextCompaction():
                opened = self._open.get(turn, item.id)
                if opened is not None and opened.shown is None:
                    self._open.end(opened)
                    self._updates.compaction(opened.item.id, not event.cut)
            case items.ExitedReview():
                self._end_review(succeeded=item.output is not None)
                if item.output is not None:
                    self._updates.text(
                        Speaker.AGENT, f"{item.id}-findings", outcome(item.output) or NO_FINDINGS
                    )
            case items.UserMessage() | items.EnteredReview():
                pass
            case _:
                self._call_over(turn, item, cut=event.cut)

    def _end_review(self, *, succeeded: bool) -> None:
        review, self._review = self._review, None
        if review is not None:
            self._end(review, succeeded=succeeded)

    def _end(self, call: ToolCallView, *, succeeded: bool) -> None:
        call.status = ToolCallStatus.COMPLETED if succeeded else ToolCallStatus.FAILED
        self._updates.call_ends(call)

    def _call_over(self, turn: str, item: tool_call_views.Item, *, cut: bool) -> None:
        opened = self._open.get(turn, item.id)
        if opened is None or not isinstance(opened.shown, OpenCall):
            return
        self._open.end(opened)
        call = opened.shown.call
        tool_call_views.end(call, item, cut=cut)
        if not opened.shown.over_for_client:
            self._updates.call_ends(call)
        elif isinstance(item, items.CommandExecution):
            code = "" if item.exit_code is None else f" with exit code {item.exit_code}"
            ended = f"The command `{call.title}`, which went on in the background, has ended{code}."
            self._news.notice(Notice(ended, Severity.INFO))

    def _runs(self, turn: str, engine_id: str) -> None:
        call = self.call_asked_about(turn, engine_id)
        if call is not None and call.status is ToolCallStatus.PENDING:
            call.status = ToolCallStatus.IN_PROGRESS
            self._updates.call_runs(call)

    def _output(self, turn: str, event: events.CommandOutput) -> None:
        opened = self._open.latest(turn, event.item_id)
        if opened is None or not isinstance(opened.shown, OpenCall):
            return
        call = opened.shown.call
        if not opened.shown.over_for_client and call.runs_command:
            text = opened.output(event.stream, event.chunk)
            if text:
                self._updates.call_prints(call, text)

    # --- turns
    def _turn_ended(self) -> None:
        """Close all open items. The engine ends all items of a turn except commands that go on."""
        for opened in self._open.all():
            match opened.shown:
                case OpenCall(over_for_client=True):
                    pass
                case OpenCall(call=call) if isinstance(opened.item, items.CommandExecution):
                    opened.shown.over_for_client = True
                    call.output = self._updates.printed(call)
                    call.notes = (text_content("The command goes on in the background."),)
                    self._end(call, succeeded=True)
                case _:
                    self._cut(opened)
        self._end_review(succeeded=False)
        self._news.turn_ended()
