"""Conversion of the events of a session into updates for its client. Pure.

`SessionReducer` converts messages, tool calls, reviews and compactions; `SessionNotices` converts everything besides
items: notices, the plan, and how full the context is. Items and their texts are those of the running turn (`LiveTurn`).
A call is announced once, goes on and ends once, and no call is open when its turn ends. Output of a command that
outlives its turn is not sent.
"""

from __future__ import annotations

from typing import Final

from app_server.engine.session import review_texts
from app_server.engine.storage.turn_fold import ItemIds
from app_server.server.apis.acp import tool_call_views
from app_server.server.apis.acp.updates import Notice, SessionUpdates, Severity, Speaker, printed
from app_server.server.conversations.live_turn import LiveItem, LiveTurn
from app_server_protocol.acp.tool_calls import ToolCallStatus
from app_server_protocol.engine import events, items
from app_server_protocol.engine.events import EngineEvent, SessionEvent
from app_server_protocol.engine.hook_runs import HookCompleted, HookStarted
from app_server_protocol.engine.item_text import Part
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

    def __init__(self, updates: SessionUpdates) -> None:
        """Begin without usage."""
        self._updates, self._ids = updates, ItemIds()
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

    def take(self, event: EngineEvent) -> None:  # noqa: C901 - one case for each kind
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
            case HookCompleted(run=run):
                if run.problem is not None:
                    self.notice(Notice(run.problem))
            case DeprecationNotice():
                self.notice(Notice(event.summary, details=event.details))
            case (
                events.ItemTextGrown()
                | events.CommandOutput()
                | events.ItemStarted()
                | events.ItemCompleted()
                | events.CommandRunning()
                | events.PatchWriting()
                | events.TurnStarted()
                | events.TurnEnded()
                | UndoCompleted()
            ):
                pass  # `SessionReducer` writes them
            case (
                events.ReasoningSummaryPart()
                | events.TerminalInput()
                | events.SettingsChanged()
                | events.ModelRerouted()
                | events.McpServerStateChanged()
                | events.GoalUpdated()
                | events.GoalCleared()
                | HookStarted()
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


class SessionReducer:
    """Writes what each event changes for the client."""

    def __init__(self, updates: SessionUpdates, notices: SessionNotices) -> None:
        self._updates, self._notices, self._ids = updates, notices, ItemIds()
        self._over: set[LiveItem] = set()
        """Items that are over for the client, because their turns have ended, while they go on."""
        self._review: tool_call_views.ToolCallView | None = None

    # --- events
    def take(self, event: SessionEvent, live: LiveTurn) -> None:
        """Write what an event changes for the client."""
        inner, item = event.event, live.item
        match inner:
            case events.ItemTextGrown(part=part):
                if item is not None and any(item.parts[part].pieces[item.parts[part].since : inner.end]):
                    self._text(item, part)
            case events.TurnStarted():
                self._notices.turn_started(event.turn_id or "", inner.model_context_window)
            case events.TurnEnded():
                self._turn_ended(live)
            case UndoCompleted():
                text = inner.message or ("The files are as before." if inner.success else "Undo failed.")
                id = self._ids.reserve(f"undo-{event.turn_id or ''}")
                self._updates.whole_text(Speaker.AGENT, id, text)
            case events.ItemStarted() if item is not None:
                self._started(item)
            case events.ItemCompleted() if item is not None:
                self._completed(item, inner)
            case events.CommandOutput() if item is not None:
                self._output(item)
            case events.CommandRunning() | events.PatchWriting() if item is not None:
                call = call_of(item)
                if item.runs == 1 and call is not None and call.status is ToolCallStatus.IN_PROGRESS:
                    self._runs(item, call)
            case _:
                self._notices.take(inner)

    def joined(self, live: LiveTurn) -> None:
        """Write the running turn and the items that go on, with their content so far."""
        if live.started is not None:
            self._notices.turn_started(live.turn_id or "", live.started.model_context_window)
        for item in live.open_items():
            self._started(item)
            for part, text in item.parts.items():
                if text.length:
                    self._text(item, part)
            call = call_of(item)
            if item.runs and call is not None:
                self._runs(item, call)
            self._output(item)

    # --- messages
    def _text(self, item: LiveItem, part: Part) -> None:
        """Write that a part of a message or of a thought has grown."""
        speaker = _speaker(item.item)
        if speaker is not None:
            first = next((each for each, text in item.parts.items() if text.length), part)
            prefix = "" if first == part else BETWEEN_PARTS
            self._updates.text(speaker, item.item.id, item.parts[part], prefix)

    def _whole(self, item: LiveItem, text: str) -> None:
        """Write the part of a message's text that was not streamed."""
        speaker = _speaker(item.item)
        sent = BETWEEN_PARTS.join(part.text() for part in item.parts.values() if part.length)
        if speaker is not None and text.startswith(sent) and len(text) > len(sent):
            self._updates.whole_text(speaker, item.item.id, text[len(sent) :])

    # --- items
    def _started(self, item: LiveItem) -> None:
        match item.item:
            case items.ContextCompaction():
                self._updates.compaction(item.item.id)
            case items.EnteredReview():
                self._review = tool_call_views.begun(item.item, item.item.id)
                self._updates.call(self._review)
            case _ if (call := begun_call(item)) is not None:
                self._updates.call(call)
            case _:
                pass

    def _completed(self, item: LiveItem, event: events.ItemCompleted) -> None:
        ended, id = event.item, item.item.id
        match ended:
            case items.AgentMessage() | items.Plan():
                self._whole(item, ended.text)
            case items.Reasoning():
                self._whole(item, reasoning_text(ended))
            case items.ContextCompaction():
                if item not in self._over:
                    self._updates.compaction(id, not event.cut)
            case items.ExitedReview():
                if self._review is not None:
                    self._end_review(self._review, succeeded=ended.output is not None)
                if ended.output is not None:
                    self._updates.whole_text(
                        Speaker.AGENT,
                        f"{ended.id}-findings",
                        review_texts.outcome(ended.output) or NO_FINDINGS,
                    )
            case items.UserMessage() | items.EnteredReview() | items.HookPrompt():
                pass
            case _:
                self._call_over(item, ended, cut=event.cut)
        self._over.discard(item)

    def _end_review(self, review: tool_call_views.ToolCallView, *, succeeded: bool) -> None:
        self._review = None
        self._end(review, succeeded=succeeded)

    def _end(self, call: tool_call_views.ToolCallView, *, succeeded: bool, ran: bool = False) -> None:
        call.status = ToolCallStatus.COMPLETED if succeeded else ToolCallStatus.FAILED
        self._updates.call_ends(call, ran=ran)

    def _call_over(self, item: LiveItem, ended: tool_call_views.Item, *, cut: bool) -> None:
        call = call_of(item)
        if call is None:
            return
        tool_call_views.end(call, ended, cut=cut)
        if item not in self._over:
            self._updates.call_ends(call, ran=_ran(item))
        elif isinstance(ended, items.CommandExecution):
            code = "" if ended.exit_code is None else f" with exit code {ended.exit_code}"
            text = f"The command `{call.title}`, which went on in the background, has ended{code}."
            self._notices.notice(Notice(text, Severity.INFO))

    def _runs(self, item: LiveItem, call: tool_call_views.ToolCallView) -> None:
        if item not in self._over and _may_wait(item.item):
            self._updates.call_runs(call)

    def _output(self, item: LiveItem) -> None:
        call = call_of(item)
        if call is not None and call.runs_command and item.output is not None and item not in self._over:
            self._updates.call_prints(call, item.output)

    # --- turns
    def _turn_ended(self, live: LiveTurn) -> None:
        """Close all open items. The engine ends all items of a turn except commands that go on."""
        for item in live.open_items():
            call = call_of(item)
            if item in self._over:
                continue
            self._over.add(item)
            if call is not None:
                goes_on = isinstance(item.item, items.CommandExecution)
                call.output = printed(item.output)
                if goes_on:
                    call.notes = (tool_call_views.text_content("The command goes on in the background."),)
                self._end(call, succeeded=goes_on, ran=_ran(item))
            elif isinstance(item.item, items.ContextCompaction):
                self._updates.compaction(item.item.id, succeeded=False)
        if self._review is not None:  # it was interrupted
            self._end_review(self._review, succeeded=False)
        self._notices.turn_ended()


def _speaker(item: items.Item) -> Speaker | None:
    match item:
        case items.AgentMessage() | items.Plan():
            return Speaker.AGENT
        case items.Reasoning():
            return Speaker.THOUGHT
        case _:
            return None


def begun_call(item: LiveItem) -> tool_call_views.ToolCallView | None:
    """Return the call of an item as it was announced; None if the item is shown as no call."""
    match item.item:
        case (
            items.AgentMessage()
            | items.Plan()
            | items.Reasoning()
            | items.ContextCompaction()
            | items.UserMessage()
            | items.ExitedReview()
            | items.EnteredReview()
            | items.HookPrompt()
        ):
            return None
        case shown:
            return tool_call_views.begun(shown, item.item.id)


def call_of(item: LiveItem) -> tool_call_views.ToolCallView | None:
    """Return the call of an item in its present state; None if the item is shown as no call."""
    call = begun_call(item)
    if call is not None and item.runs:
        call.status = ToolCallStatus.IN_PROGRESS
    return call


def _may_wait(item: items.Item) -> bool:
    """Return whether a call was announced as pending, because the user may be asked about it."""
    return isinstance(item, items.CommandExecution | items.FileChange)


def _ran(item: LiveItem) -> bool:
    return item.runs > 0 or item.output is not None
