"""Messages that the server initiates: events go to the feed of their thread, and from there to all subscribers;
requests go to a handler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias
from weakref import WeakSet

from app_server.client.answering import ApprovalHandler, RequestAnswerer
from app_server.client.connection import ServerConnection
from app_server.client.event_stream import EventQueue
from app_server.client.events import ServerEvent, parse_event, thread_of, turn_of, warning_text
from app_server.client.failures import ServerEnded, ThreadClosed
from app_server.client.hook_callbacks import HookAnswerer
from app_server.client.plain_warnings import WARNINGS as PLAIN_WARNINGS
from app_server.client.turn_handle import TurnProgress
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import Request
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2.hook_runs import HOOK_RUN
from app_server_protocol.v2.items import ThreadItem
from app_server_protocol.v2.thread import MCP_SERVER_STARTUP_STATUS_UPDATED, THREAD_CLOSED, THREAD_DELETED
from app_server_protocol.v2.turn import TurnCompletedNotification, TurnStartedNotification

ENDED_TURNS = 16
"""Maximum number of ended turns that are kept."""


class ThreadFeed:
    """Feed of one thread that this client has opened. A stream is forgotten when it is no longer referenced."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.on_approval: ApprovalHandler | None = None
        self.running_turn: str | None = None
        """Id of the running turn, by the events and answers so far. None if no turn runs."""
        self._turns: dict[str, list[TurnProgress]] = {}
        self._all: WeakSet[EventQueue] = WeakSet()
        self._of_turn: dict[str, WeakSet[EventQueue]] = {}
        self._ended: dict[str, TurnProgress] = {}
        """The last ended turns, without their items, for callers that ask for one shortly after its end."""
        self._open_items: dict[str, ThreadItem] = {}
        self._coming: list[TurnProgress] = []
        """Progress objects of callers that begin a turn without learning its id. They follow the next turn."""

    def follow(self, turn_id: str, queue: EventQueue | None = None) -> TurnProgress:
        """Follow a turn from now on, until it ends."""
        if (ended := self._ended.get(turn_id)) is not None:
            return ended
        self.running_turn = turn_id
        if queue is not None:
            self._of_turn.setdefault(turn_id, WeakSet()).add(queue)
        return self._turns.setdefault(turn_id, [TurnProgress(turn_id)])[0]

    def next_turn(self) -> TurnProgress:
        """Follow the turn that begins next, which has no id until then."""
        self._coming.append(coming := TurnProgress(""))
        return coming

    def subscribe(self, queue: EventQueue) -> None:
        """Add a queue that receives every event of the thread from now on."""
        self._all.add(queue)

    def unsubscribe(self, queue: EventQueue) -> None:
        self._all.discard(queue)
        for queues in self._of_turn.values():
            queues.discard(queue)

    def open_item(self, item_id: object) -> ThreadItem | None:
        """Return an item that has started and not ended; None if there is none."""
        return self._open_items.get(item_id) if isinstance(item_id, str) else None

    def publish(self, event: ServerEvent) -> bool:
        """Pass on an event. Return whether it has a reader."""
        match event:
            case wire.ItemStartedNotification(item=item):
                self._open_items[item.id] = item
            case wire.ItemCompletedNotification(item=item):
                self._open_items.pop(item.id, None)
            case TurnStartedNotification(turn=turn):
                self._begin(turn.id)
            case _:
                pass
        turn_id = turn_of(event)
        readers = [*self._all, *self._of_turn.get(turn_id or "", ())]
        for queue in readers:
            queue.put(event)
        for progress in self._turns.get(turn_id or "", ()):
            progress.observe(event)
        if isinstance(event, TurnCompletedNotification):
            self._forget(event)
        return bool(readers)

    def _begin(self, turn_id: str) -> None:
        self.running_turn = turn_id
        coming, self._coming = self._coming, []
        for each in coming:
            each.turn_id = turn_id
        if coming:
            self._turns.setdefault(turn_id, []).extend(coming)

    def _forget(self, event: TurnCompletedNotification) -> None:
        turn_id = event.turn.id
        self._ended[turn_id] = ended = TurnProgress(turn_id)
        ended.observe(event)
        if len(self._ended) > ENDED_TURNS:
            del self._ended[next(iter(self._ended))]
        if self.running_turn == turn_id:
            self.running_turn = None
        self._turns.pop(turn_id, None)
        for queue in self._of_turn.pop(turn_id, ()):
            queue.close()

    def fail_turn(self, turn_id: object, error: Exception) -> None:
        """Raise the error in all callers that follow the turn."""
        if not isinstance(turn_id, str):
            return
        for progress in self._turns.get(turn_id, ()):
            progress.fail(error)
        for queue in self._of_turn.pop(turn_id, ()):
            queue.close(error)

    def end(self, error: Exception | None) -> None:
        """End all streams and turns, because the server has ended (`error`), or the thread was closed."""
        cause = error or ThreadClosed(f"the thread {self.thread_id} was closed")
        for progress in [*self._coming, *(each for turn in self._turns.values() for each in turn)]:
            progress.fail(cause, final=True)
        for queue in [*self._all, *(queue for queues in self._of_turn.values() for queue in queues)]:
            queue.close(error)
        self._turns.clear()
        self._coming.clear()
        self._of_turn.clear()
        self._open_items.clear()


WARNINGS = {*PLAIN_WARNINGS, MCP_SERVER_STARTUP_STATUS_UPDATED.method}

log = logging.getLogger(__name__)

OnWarning: TypeAlias = Callable[[str, ServerEvent], None]
"""Callback for a warning: its text for a person, and the notification."""


def log_warning(text: str, event: ServerEvent) -> None:
    """Log the warning. Without a logging setup, Python prints it on stderr."""
    log.warning("%s", text)


class ServerFeeds:
    """The receiver of a connection (`connection.Receiver`)."""

    def __init__(
        self,
        answerer: RequestAnswerer,
        on_approval: ApprovalHandler | None,
        on_warning: OnWarning,
        hooks: HookAnswerer | None = None,
    ) -> None:
        self._answerer, self._hooks = answerer, hooks
        self._on_approval, self._on_warning = on_approval, on_warning
        self._threads: dict[str, ThreadFeed] = {}
        self._listeners: WeakSet[EventQueue] = WeakSet()

    # --- threads
    def open(self, thread_id: str, on_approval: ApprovalHandler | None) -> ThreadFeed:
        """Return the feed of a thread. A handler replaces the previous one."""
        feed = self._threads.setdefault(thread_id, ThreadFeed(thread_id))
        feed.on_approval = on_approval or feed.on_approval
        return feed

    def drop(self, thread_id: str) -> None:
        """Forget a thread that sends no more events."""
        if (feed := self._threads.pop(thread_id, None)) is not None:
            feed.end(None)

    # --- events that concern no single thread
    def subscribe(self, queue: EventQueue) -> None:
        self._listeners.add(queue)

    def unsubscribe(self, queue: EventQueue) -> None:
        self._listeners.discard(queue)

    # --- connection.Receiver
    def notified(self, method: str, params: Json) -> None:
        if method == wire.SERVER_REQUEST_RESOLVED.method and isinstance(params, dict):
            self._answerer.withdraw(params.get("requestId", ""))
            if self._hooks is not None:
                self._hooks.withdraw(params.get("requestId", ""))
        thread_id = thread_of(params)
        feed = self._threads.get(thread_id) if thread_id is not None else None
        if feed is None and not self._listeners and method not in WARNINGS:
            return
        event = parse_event(method, params)
        read = feed is not None and feed.publish(event)
        for queue in (listeners := list(self._listeners)):
            queue.put(event)
        if not (read or listeners) and (text := warning_text(event)) is not None:
            self._warn(text, event)
        if feed is not None and method in (THREAD_CLOSED.method, THREAD_DELETED.method):
            self.drop(feed.thread_id)

    def _warn(self, text: str, event: ServerEvent) -> None:
        try:
            self._on_warning(text, event)
        except Exception:
            log.exception("on_warning failed")

    def asked(self, request: Request, connection: ServerConnection) -> None:
        if self._hooks is not None and request.method == HOOK_RUN.method:
            self._hooks.asked(request, connection)
            return
        fields = request.params if isinstance(request.params, dict) else {}
        feed = self._threads.get(thread_of(fields) or "")
        self._answerer.answer(
            request,
            connection,
            (feed.on_approval if feed else None) or self._on_approval,
            feed.open_item(fields.get("itemId")) if feed else None,
            lambda error: feed.fail_turn(fields.get("turnId"), error) if feed else None,
        )

    def ended(self, error: ServerEnded) -> None:
        for feed in self._threads.values():
            feed.end(error)
        self._threads.clear()
        for queue in list(self._listeners):
            queue.close(error)
