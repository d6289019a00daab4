"""Conversion of events of the engine into notifications of the thread API. Pure.

Clients rely on this order: `turn/started`, then items, then `turn/completed`, each once per turn, and every item ended
before the turn is. The exception is a command that goes on: its output and end are sent later, under the turn that
began it. A text delta costs one concatenation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from app_server.engine.storage.turn_fold import ItemIds, TurnFold
from app_server.engine.support.lazy import Lazy
from app_server.server.apis.v2.item_lines import Ended, ItemLines, NotificationLines, ThreadItems
from app_server.server.apis.v2.notices import AccountLimits, ThreadNotices
from app_server.server.apis.v2.thread_items import thread_item
from app_server.server.apis.v2.thread_settings import thread_status
from app_server.server.apis.v2.turn_shapes import ended_turn, review_message, shown_turn
from app_server.server.apis.v2.v2_errors import retried_error, turn_error
from app_server.server.conversations.adapter import ConversationStatus, OutboundMessage, OutboundRequest
from app_server_protocol.engine import events
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import EndedItem, TurnRecord
from app_server_protocol.engine.items import Item
from app_server_protocol.engine.notices import Notice, TokenUsageUpdated
from app_server_protocol.engine.questions import (
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallQuestion,
    PatchApprovalQuestion,
    ToolCallQuestion,
    UserInputQuestion,
)
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2 import server, turn
from app_server_protocol.v2.thread import THREAD_STATUS_CHANGED
from app_server_protocol.values import replace

Unshown = events.Question | events.PatchWriting | events.CommandRunning | events.McpServersSettled
"""Events without a notification. Questions become requests; the others report facts that clients are shown already."""

AskClient = Callable[[str, events.SessionEvent, Item | None, int], OutboundRequest | None]


_QUESTION: Final[Lazy[AskClient]] = Lazy(
    lambda: import_module("app_server.server.apis.v2.v2_requests").question
)
"""Function that makes questions; loaded with the first question."""
_UNEXPLAINED: Final = TurnError("The turn failed.", ErrorClass.OTHER)


class ThreadAdapter:
    """Converts the events of one thread into notifications of this API.

    `now` returns seconds since 1970, `ids` are the ids that stored items of the thread have, `limits` are shared by all
    threads, `usage` is the usage of the thread so far.
    """

    needs_identity = outlasts_clients = runs_tools = True

    def __init__(
        self,
        thread_id: str,
        now: Callable[[], float],
        ids: ItemIds | None = None,
        limits: AccountLimits | None = None,
        usage: TokenUsageInfo | None = None,
    ) -> None:
        self._thread_id = thread_id
        self._lines = NotificationLines(thread_id, now)
        self._news = ThreadNotices(thread_id, self._lines, limits or AccountLimits(), usage)
        self._open = ThreadItems(ItemIds() if ids is None else ids)
        self._items = ItemLines(thread_id, self._lines, self._open)
        self._fold = TurnFold()
        """Fold of the running turn."""

    # --- the running turn
    @property
    def running(self) -> TurnRecord | None:
        """Return the running turn, with the items that have ended."""
        return self._fold.running

    def running_turn(self) -> turn.Turn | None:
        """Return the running turn for a client that joins, with the partial items."""
        record = self.running
        if record is None:
            return None
        going_on = [
            thread_item(each.so_far(), each.started_ms, None) for each in self._open.of_turn(record.id)
        ]
        return shown_turn(record, turn.TurnItemsView.FULL, going_on)

    def joined(self) -> Sequence[OutboundMessage]:
        """Return the notifications for a client that joins: the running turn, and the current state of each item that
        goes on.
        """
        if (record := self.running) is not None:
            shown = shown_turn(record, turn.TurnItemsView.NOT_LOADED)
            self._lines.add(turn.TURN_STARTED, thread_id=self._thread_id, turn=shown)
        for each in self._open.all():
            self._items.begun(each)
        return self._lines.take()

    def item_id(self, turn_id: str, engine_id: str) -> str:
        """Return the id by which clients know an item that goes on."""
        opened = self._open.latest(turn_id, engine_id)
        return engine_id if opened is None else opened.item.id

    # --- the adapter of a live conversation
    def lines(self, event: events.SessionEvent, *, subscribed: bool, raw: bool) -> Sequence[OutboundMessage]:
        self._take(event, raw=raw)
        lines = self._lines.take()
        return lines if subscribed else ()

    def question(self, event: events.SessionEvent) -> OutboundRequest | None:
        match event.event:
            case ElicitationQuestion() | ToolCallQuestion() | UserInputQuestion():
                opened = None
            case (
                CommandApprovalQuestion(call_id=id)
                | PatchApprovalQuestion(call_id=id)
                | McpCallQuestion(call_id=id)
            ):
                opened = self._open.latest(event.turn_id, id)
            case _:
                return None
        item = None if opened is None else opened.item
        return _QUESTION.get()(self._thread_id, event, item, self._lines.now_ms())

    def question_closed(
        self, request_id: int, *, answered: bool, elsewhere: bool = False
    ) -> Sequence[OutboundMessage]:
        self._lines.add(wire.SERVER_REQUEST_RESOLVED, thread_id=self._thread_id, request_id=request_id)
        return self._lines.take()

    def status_changed(self, status: ConversationStatus) -> Sequence[OutboundMessage]:
        shown = thread_status(status)
        self._lines.add_state(THREAD_STATUS_CHANGED, None, thread_id=self._thread_id, status=shown)
        return self._lines.take()

    def on_session_replaced(self, *, continues: bool) -> None:
        """Do nothing: this API does not show the end of a session."""

    def on_reverted(self) -> Sequence[OutboundMessage]:
        return ()  # `thread/reverted` is sent to clients that are not subscribed, too

    # --- events
    def _take(self, event: events.SessionEvent, *, raw: bool) -> None:
        inner, turn_id = event.event, event.turn_id
        if turn_id is not None and isinstance(inner, events.AgentMessageDelta):
            self._items.take(turn_id, inner)
        elif isinstance(inner, events.GoalUpdated | events.GoalCleared):
            self._news.goal(turn_id, inner)
        elif isinstance(inner, TokenUsageUpdated) and self._in_review():
            pass  # a review's context is not the thread's; its usage is in the total of the next turn
        elif isinstance(inner, Notice):
            self._news.take(turn_id, inner, raw=raw)
        elif isinstance(inner, events.SettingsChanged):
            self._news.settings(inner)
        elif isinstance(inner, events.ModelRerouted):
            self._news.rerouted(turn_id, inner)
        elif isinstance(inner, events.McpServerStateChanged):
            self._news.server_state(inner)
        elif turn_id is not None and not isinstance(inner, Unshown):
            match inner:
                case events.TurnStarted():
                    self._turn_started(turn_id, inner)
                case events.TurnEnded():
                    self._turn_ended(turn_id, inner)
                case events.AttemptFailed(attempt=attempt, attempts=attempts):
                    self._error(turn_id, retried_error(inner.error, attempt, attempts), will_retry=True)
                case of_item:
                    self._keep(turn_id, self._items.take(turn_id, of_item))

    def _keep(self, turn_id: str, ended: Ended) -> None:
        """Store ended items of the running turn; a turn that is over is read from the disk."""
        for each in ended:
            if self._is_running(turn_id):
                self._fold.apply(events.SessionEvent("", turn_id, each))
            message = review_message(EndedItem(each.item, each.started_at_ms, each.at_ms, each.cut))
            if message is not None:
                self._items.take(turn_id, events.ItemStarted(message.item, each.at_ms))
                self._items.take(turn_id, events.ItemCompleted(message.item, each.at_ms, each.at_ms))

    def _is_running(self, turn_id: str) -> bool:
        running = self.running
        return running is not None and running.id == turn_id

    def _in_review(self) -> bool:
        return self.running is not None and self.running.kind is events.TurnKind.REVIEW

    def _turn_started(self, turn_id: str, event: events.TurnStarted) -> None:
        if self._is_running(turn_id):
            return
        self._fold = TurnFold()
        self._fold.apply(events.SessionEvent("", turn_id, event))
        self._news.turn_started()
        shown = shown_turn(self._fold.last, turn.TurnItemsView.NOT_LOADED)
        self._lines.add(turn.TURN_STARTED, thread_id=self._thread_id, turn=shown)

    def _turn_ended(self, turn_id: str, event: events.TurnEnded) -> None:
        if not self._is_running(turn_id):
            self._fold = TurnFold()
            if (
                event.started_at is None
            ):  # it ended before it did anything; else it began before the thread was followed
                self._turn_started(turn_id, events.TurnStarted(events.TurnKind.REGULAR, None, event.ended_at))
        self._keep(turn_id, self._items.end_turn(turn_id, int(event.ended_at * 1000)))
        if event.status is events.TurnStatus.FAILED:
            error = event.error or _UNEXPLAINED
            event = replace(event, error=error)
            self._error(turn_id, turn_error(error), will_retry=False)
        self._fold.apply(events.SessionEvent("", turn_id, event))
        shown = ended_turn(self._fold.last)
        self._lines.add(turn.TURN_COMPLETED, thread_id=self._thread_id, turn=shown)
        self._fold = TurnFold()

    def _error(self, turn_id: str, error: server.TurnError, *, will_retry: bool) -> None:
        self._lines.add(
            server.ERROR, error=error, will_retry=will_retry, thread_id=self._thread_id, turn_id=turn_id
        )
