"""The APIs that show one conversation, and who subscribed to them.

Each API has one adapter here, which sees every event; who subscribed decides what is sent. Events wait in the session
until somebody subscribes, unless an API follows the conversation by turns and items: then the conversation goes on
without subscribers, and what the others would have been sent waits here, up to a bound.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.conversations.adapter import AdapterFactory, ApiAdapter, ClientQuestion, ConversationStatus
from app_server.rpc.outgoing import Outgoing
from protocol.engine.events import SessionEvent

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle

MOST_WAITING = 4096
"""Events that wait here for the first subscriber of an API, while the conversation goes on; then the oldest go."""


class SubscribedApi(Struct):
    """One API of one conversation."""

    adapter: ApiAdapter
    subscribers: dict[str, bool] = msgspec.field(default_factory=dict)
    """By subscription, whether it wants the model's items as they came, too."""
    waiting: deque[SessionEvent] = msgspec.field(default_factory=lambda: deque(maxlen=MOST_WAITING))

    @property
    def raw(self) -> bool:
        return any(self.subscribers.values())


class Subscriptions:
    """Adapters and subscribers of one conversation, and the lines that they are sent."""

    def __init__(self, conversation_id: str, session: SessionHandle, outgoing: Outgoing) -> None:
        self._id, self._session, self._outgoing = conversation_id, session, outgoing
        self._apis: dict[AdapterFactory, SubscribedApi] = {}
        self._elsewhere = self._left = False
        self.followed = anyio.Event()
        """Set while events are taken: somebody is subscribed, or an API follows without subscribers."""
        self.preferred: AdapterFactory | None = None
        """The API whose request began the last turn."""

    # --- who subscribed
    def adapter(self, make_adapter: AdapterFactory) -> ApiAdapter:
        """Return the adapter of an API, made where there is none yet."""
        return self._api(make_adapter).adapter

    def add(self, id: str, make_adapter: AdapterFactory, *, raw: bool) -> ApiAdapter:
        """Subscribe to an API and send what waited for it. Subscriptions of one API share an adapter, so that each
        event reaches the client once in the words of an API.
        """
        api = self._api(make_adapter)
        api.subscribers[id] = raw
        for event in list(api.waiting):
            self._send_to(api, event)
        api.waiting.clear()
        self._follow()
        return api.adapter

    def remove(self, id: str) -> bool:
        """End a subscription; False where there is none of that id."""
        found = any(api.subscribers.pop(id, None) is not None for api in self._apis.values())
        self._follow()
        return found

    def clear(self) -> None:
        """End all subscriptions: the client has left, and nobody is sent anything more, not even a status."""
        self._left = True
        for api in self._apis.values():
            api.subscribers.clear()
        self._follow()

    @property
    def any(self) -> bool:
        """Whether anybody is subscribed."""
        return any(api.subscribers for api in self._apis.values())

    def to(self, make_adapter: AdapterFactory) -> bool:
        """Return whether somebody is subscribed to that API."""
        api = self._apis.get(make_adapter)
        return api is not None and bool(api.subscribers)

    def wants_raw(self, make_adapter: AdapterFactory) -> bool:
        """Return whether a subscriber of that API wants the model's items as they came, too."""
        api = self._apis.get(make_adapter)
        return api is not None and api.raw

    # --- what is sent
    def send(self, event: SessionEvent) -> None:
        """Send an event to who subscribed; for APIs without subscribers it waits."""
        for api in self._apis.values():
            if api.subscribers or api.adapter.needs_identity:
                self._send_to(api, event)
            else:
                api.waiting.append(event)

    def send_status(self, status: ConversationStatus) -> None:
        for api in () if self._left else self._apis.values():
            for line in api.adapter.status_changed(status):
                self._outgoing.send(line)

    def continues_elsewhere(self) -> None:
        """Let every adapter know that the end of the session is not the conversation's."""
        self._elsewhere = True
        for api in self._apis.values():
            api.adapter.continues_elsewhere()

    # --- who is asked
    def asked(self) -> ApiAdapter:
        """Return where the client is asked: in the API that began the turn, else in the one that was subscribed to
        last, else in any. There is one, or no events would be taken.
        """
        apis = [api for api in self._apis.values() if api.subscribers]
        preferred = self._apis.get(self.preferred) if self.preferred is not None else None
        if preferred in apis:
            return preferred.adapter
        return apis[-1].adapter if apis else next(iter(self._apis.values())).adapter

    def in_any_words(self, event: SessionEvent) -> tuple[ApiAdapter, ClientQuestion] | None:
        """Return the event's question in the words of the first API that has some."""
        for api in self._apis.values():
            if (question := api.adapter.question(event)) is not None:
                return api.adapter, question
        return None

    def is_subscribed(self, adapter: ApiAdapter) -> bool:
        """Return whether somebody is subscribed to the API with this adapter."""
        return any(api.adapter is adapter and api.subscribers for api in self._apis.values())

    def _api(self, make_adapter: AdapterFactory) -> SubscribedApi:
        api = self._apis.get(make_adapter)
        if api is None:
            api = self._apis[make_adapter] = SubscribedApi(make_adapter(self._id))
            if self._elsewhere:
                api.adapter.continues_elsewhere()
            if api.adapter.needs_identity:
                self._session.store_identity()
            self._follow()
        return api

    def _follow(self) -> None:
        follows = any(api.subscribers or api.adapter.needs_identity for api in self._apis.values())
        if follows:
            self.followed.set()
        elif self.followed.is_set():
            self.followed = anyio.Event()

    def _send_to(self, api: SubscribedApi, event: SessionEvent) -> None:
        for line in api.adapter.lines(event, subscribed=bool(api.subscribers), raw=api.raw):
            self._outgoing.send(line)
