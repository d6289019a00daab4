"""Conversion of events of the engine into notifications of the thread API. Pure.

Clients rely on this order: `turn/started`, then items, then `turn/completed`, each once per turn, and every item ended
before the turn is. The exception is a command that goes on: its output and end are sent later, under the turn that
began it. A text delta costs one concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from app_server.server.apis.v2 import v2_requests
from app_server.server.apis.v2.account_limits import AccountLimits
from app_server.server.apis.v2.item_lines import ItemEvent, ItemLines, NotificationLines
from app_server.server.apis.v2.notices import ThreadNotices
from app_server.server.apis.v2.thread_items import thread_item
from app_server.server.apis.v2.thread_settings import thread_status
from app_server.server.apis.v2.turn_shapes import ended_turn, review_message, shown_turn
from app_server.server.apis.v2.v2_errors import retried_error, turn_error
from app_server.server.conversations.adapter import (
    Activity,
    ConversationStatus,
    Message,
    OutboundMessage,
    OutboundRequest,
)
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol.engine import events
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import EndedItem, TurnRecord
from app_server_protocol.engine.hook_runs import HookCompleted, HookStarted
from app_server_protocol.engine.items import ExitedReview, Item
from app_server_protocol.engine.notices import Notice, TokenUsageUpdated
from app_server_protocol.engine.questions import (
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallQuestion,
    PatchApprovalQuestion,
    Question,
    ToolCallQuestion,
    UserInputQuestion,
)
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2 import server, turn
from app_server_protocol.v2.thread import THREAD_STATUS_CHANGED
from app_server_protocol.values import replace

Unshown = Question | events.PatchWriting | events.CommandRunning | events.McpServersSettled
"""Events without a notification. Questions become requests; the others report facts that clients are shown already."""

TurnEvent = events.TurnStarted | events.TurnEnded | events.AttemptFailed | ItemEvent

AskClient = Callable[[str, events.SessionEvent, Item | None, int], OutboundRequest | None]


_UNEXPLAINED: Final = TurnError("The turn failed.", ErrorClass.OTHER)


def running_turn(live: LiveTurn) -> turn.Turn | None:
    """Return the running turn for a client that joins, with the items that go on; None if no turn runs."""
    record = live.record
    if record is None:
        return None
    going_on = [
        thread_item(each.so_far(), each.started.at_ms, None)
        for each in live.open_items()
        if each.turn_id == record.id
    ]
    return shown_turn(record, turn.TurnItemsView.FULL, going_on)


class ThreadAdapter:
    """Converts the events of one thread into notifications of this API.

    `now` returns seconds since 1970, `limits` are shared by all threads, `usage` is the usage of the thread so far.
    """

    needs_identity = outlasts_clients = runs_tools = True

    def __init__(
        self,
        thread_id: str,
        now: Callable[[], float],
        limits: AccountLimits | None = None,
        usage: TokenUsageInfo | None = None,
    ) -> None:
        self._thread_id = thread_id
        self._lines = NotificationLines(thread_id, now)
        self._news = ThreadNotices(thread_id, self._lines, limits or AccountLimits(), usage)
        self._items = ItemLines(thread_id, self._lines)
        self._is_active = False
        """Whether the thread is active by its last status."""

    # --- the adapter of a live conversation
    def messages(self, event: events.SessionEvent, live: LiveTurn, *, raw: bool) -> Sequence[Message]:
        self._take(event, live, raw=raw)
        return self._lines.take()

    def snapshot(self, live: LiveTurn) -> Sequence[Message]:
        """Return the notifications for a client that joins: the running turn, and the current state of each item that
        goes on.
        """
        if (record := live.record) is not None:
            shown = shown_turn(record, turn.TurnItemsView.NOT_LOADED)
            self._lines.add(turn.TURN_STARTED, thread_id=self._thread_id, turn=shown)
        for each in live.open_items():
            if each.turn_id is not None:
                self._items.begun(each)
        return self._lines.take()

    def question(self, asking: Question, turn_id: str | None, live: LiveTurn) -> OutboundRequest | None:
        match asking:
            case ElicitationQuestion() | ToolCallQuestion() | UserInputQuestion():
                opened = None
            case (
                CommandApprovalQuestion(call_id=id)
                | PatchApprovalQuestion(call_id=id)
                | McpCallQuestion(call_id=id)
            ):
                opened = live.latest(turn_id, id)
        item = None if opened is None else opened.item
        return v2_requests.question(self._thread_id, turn_id, asking, item, self._lines.now_ms())

    def question_closed(
        self, request_id: int, *, answered: bool, elsewhere: bool = False
    ) -> Sequence[Message]:
        self._lines.add(wire.SERVER_REQUEST_RESOLVED, thread_id=self._thread_id, request_id=request_id)
        return self._lines.take()

    def status_changed(self, status: ConversationStatus) -> Sequence[Message]:
        shown, was_active = thread_status(status), self._is_active
        self._is_active = status.activity is Activity.ACTIVE
        if (
            self._is_active and not was_active
        ):  # comes before the turn that begins, also for a client that is behind
            self._lines.add(THREAD_STATUS_CHANGED, thread_id=self._thread_id, status=shown)
        else:
            self._lines.add_state(THREAD_STATUS_CHANGED, None, thread_id=self._thread_id, status=shown)
        return self._lines.take()

    def on_session_replaced(self, *, continues: bool) -> None:
        """Do nothing: this API does not show the end of a session."""

    def on_reverted(self) -> Sequence[OutboundMessage]:
        return ()  # `thread/reverted` is sent to clients that are not subscribed, too

    # --- events
    def _take(self, event: events.SessionEvent, live: LiveTurn, *, raw: bool) -> None:
        inner, turn_id = event.event, event.turn_id
        if isinstance(inner, events.ItemTextGrown):
            if live.item is not None and turn_id is not None:
                self._items.take(inner, live.item)
        elif isinstance(inner, events.GoalUpdated | events.GoalCleared):
            self._news.goal(turn_id, inner)
        elif isinstance(inner, TokenUsageUpdated) and _in_review(live):
            pass  # a review's context is not the thread's; its usage is in the total of the next turn
        elif isinstance(inner, Notice):
            self._news.take(turn_id, inner, raw=raw)
        elif isinstance(inner, events.SettingsChanged):
            self._news.settings(inner)
        elif isinstance(inner, events.ModelRerouted):
            self._news.rerouted(turn_id, inner)
        elif isinstance(inner, events.McpServerStateChanged):
            self._news.server_state(inner)
        elif isinstance(inner, HookStarted | HookCompleted):
            self._news.hook(turn_id, inner)
        elif turn_id is not None and not isinstance(inner, Unshown):
            self._of_turn(turn_id, event, inner, live)

    def _of_turn(self, turn_id: str, whole: events.SessionEvent, event: TurnEvent, live: LiveTurn) -> None:
        match event:
            case events.TurnStarted():
                if (record := live.record) is not None:
                    self._turn_started(record)
            case events.TurnEnded():
                self._turn_ended(turn_id, whole, event, live)
            case events.AttemptFailed(attempt=attempt, attempts=attempts):
                self._error(turn_id, retried_error(event.error, attempt, attempts), will_retry=True)
            case of_item:
                if live.item is not None and live.item.turn_id is not None:
                    self._items.take(of_item, live.item)
                if isinstance(of_item, events.ItemCompleted) and isinstance(of_item.item, ExitedReview):
                    self._review_ended(of_item.item, of_item, live)

    def _review_ended(self, review: ExitedReview, event: events.ItemCompleted, live: LiveTurn) -> None:
        """Write the result of a review also as a message."""
        if live.item is None:
            return
        review = replace(review, id=live.item.item.id)
        message = review_message(EndedItem(review, event.started_at_ms, event.at_ms, event.cut))
        if message is not None:
            ended = events.ItemCompleted(message.item, event.at_ms, event.at_ms)
            self._items.shown(live.item.turn_id, message.item, event.at_ms)
            self._items.completed(live.item.turn_id, message.item, ended)

    def _turn_started(self, record: TurnRecord) -> None:
        shown = shown_turn(record, turn.TurnItemsView.NOT_LOADED)
        self._lines.add(turn.TURN_STARTED, thread_id=self._thread_id, turn=shown)

    def _turn_ended(
        self, turn_id: str, whole: events.SessionEvent, event: events.TurnEnded, live: LiveTurn
    ) -> None:
        if live.turn_id != turn_id and event.started_at is None:  # it ended before it did anything
            event = replace(event, started_at=event.ended_at)
            self._turn_started(TurnRecord(id=turn_id, started_at=float(int(event.ended_at))))
        if event.status is events.TurnStatus.FAILED:
            error = event.error or _UNEXPLAINED
            event = replace(event, error=error)
            self._error(turn_id, turn_error(error), will_retry=False)
        shown = ended_turn(live.ended(replace(whole, event=event)))
        self._lines.add(turn.TURN_COMPLETED, thread_id=self._thread_id, turn=shown)

    def _error(self, turn_id: str, error: server.TurnError, *, will_retry: bool) -> None:
        self._lines.add(
            server.ERROR, error=error, will_retry=will_retry, thread_id=self._thread_id, turn_id=turn_id
        )


def _in_review(live: LiveTurn) -> bool:
    return live.started is not None and live.started.kind is events.TurnKind.REVIEW
