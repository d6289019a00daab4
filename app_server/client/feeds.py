"""Routes what the server sends by itself: events to the feed of their thread, requests to a handler, and warnings that
no stream has to `OnWarning`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias
from weakref import WeakSet

from app_server.client.answering import ApprovalHandler, RequestAnswerer, Responder
from app_server.client.event_queue import EventQueue
from app_server.client.events import ServerEvent, parse_event, thread_of, warning_text
from app_server.client.failures import ServerEnded
from app_server.client.thread_feed import ThreadFeed
from protocol.base import Json
from protocol.jsonrpc import RequestId
from protocol.v2.item_events import SERVER_REQUEST_RESOLVED
from protocol.v2.mcp import MCP_SERVER_STARTUP_STATUS_UPDATED
from protocol.v2.server import CONFIG_WARNING, DEPRECATION_NOTICE, WARNING
from protocol.v2.thread import THREAD_CLOSED, THREAD_DELETED

WARNINGS = {
    each.method for each in (WARNING, CONFIG_WARNING, DEPRECATION_NOTICE, MCP_SERVER_STARTUP_STATUS_UPDATED)
}

log = logging.getLogger(__name__)

OnWarning: TypeAlias = Callable[[str, ServerEvent], None]
"""Receives a warning as text for a person, and the notification that it came with."""


def log_warning(text: str, event: ServerEvent) -> None:
    """Log it, which shows it on stderr where a program has not set up its logging otherwise."""
    log.warning("%s", text)


class ServerFeeds:
    """The receiver of a connection (`connection.Receiver`)."""

    def __init__(
        self, answerer: RequestAnswerer, on_approval: ApprovalHandler | None, on_warning: OnWarning
    ) -> None:
        self._answerer = answerer
        self._on_approval, self._on_warning = on_approval, on_warning
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
