"""Routes what the server sends by itself: events to the feed of their thread, requests to a handler."""

from __future__ import annotations

from weakref import WeakSet

from app_server.client.answering import ApprovalHandler, RequestAnswerer, Responder
from app_server.client.event_queue import EventQueue
from app_server.client.events import parse_event, thread_of
from app_server.client.failures import ServerEnded
from app_server.client.thread_feed import ThreadFeed
from protocol.base import Json
from protocol.jsonrpc import RequestId
from protocol.v2.notifications import SERVER_REQUEST_RESOLVED, THREAD_CLOSED, THREAD_DELETED


class ServerFeeds:
    """The receiver of a connection (`connection.Receiver`)."""

    def __init__(self, answerer: RequestAnswerer, on_approval: ApprovalHandler | None) -> None:
        self._answerer = answerer
        self._on_approval = on_approval
        self._threads: dict[str, ThreadFeed] = {}
        self._listeners: WeakSet[EventQueue] = WeakSet()
        self._responder: Responder | None = None

    def answer_with(self, responder: Responder) -> None:
        self._responder = responder

    # --- threads
    def open(self, thread_id: str, on_approval: ApprovalHandler | None) -> ThreadFeed:
        """The feed of a thread; a handler takes the place of the one before."""
        feed = self._threads.setdefault(thread_id, ThreadFeed(thread_id))
        feed.on_approval = on_approval or feed.on_approval
        return feed

    def drop(self, thread_id: str) -> None:
        """Nothing more comes of the thread."""
        if (feed := self._threads.pop(thread_id, None)) is not None:
            feed.end(None)

    # --- events that concern no single thread
    def subscribe(self, queue: EventQueue) -> None:
        self._listeners.add(queue)

    def unsubscribe(self, queue: EventQueue) -> None:
        self._listeners.discard(queue)

    # --- connection.Receiver
    def notified(self, method: str, params: Json) -> None:
        if method == SERVER_REQUEST_RESOLVED.method and isinstance(params, dict):
            self._answerer.withdraw(params.get("requestId", ""))
        thread_id = thread_of(params)
        feed = self._threads.get(thread_id) if thread_id is not None else None
        if feed is None and not self._listeners:
            return
        event = parse_event(method, params)
        if feed is not None:
            feed.publish(event)
        for queue in list(self._listeners):
            queue.put(event)
        if feed is not None and method in (THREAD_CLOSED.method, THREAD_DELETED.method):
            self.drop(feed.thread_id)

    def asked(self, id: RequestId, method: str, params: Json) -> None:
        assert self._responder is not None  # set before the connection reads
        fields = params if isinstance(params, dict) else {}
        feed = self._threads.get(thread_of(params) or "")
        self._answerer.answer(
            (id, method, params),
            self._responder,
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
