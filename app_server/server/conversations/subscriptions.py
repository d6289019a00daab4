"""The APIs that show one conversation, the subscribed clients, and the clients to ask.

Each API has one adapter here, which receives every event; the subscriptions decide which clients are sent its lines.

A client joins in one step: it is sent the running turn as it is at that moment (`snapshot`), and is subscribed to what
follows. Nothing is kept for a client that is about to join: what its request has to wait for comes before that step.

Events wait in the session until the client subscribes that opened the conversation, unless an API follows it by turns
and items when that request is over: then the conversation goes on without subscribers, and the messages of other APIs
wait here, up to a bound. They also wait for a client that was answered what the conversation has, and subscribes by a
later request, as clients of the conversation API do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.client_context import ClientContext
from app_server.engine.support.client_info import ClientProfile
from app_server.server.conversations.adapter import (
    ApiAdapter,
    ApiId,
    ConversationApi,
    ConversationStatus,
    Message,
)
from app_server.server.conversations.item_text import KEPT_TAIL, TextGrown
from app_server.server.conversations.live_turn import LiveTurn
from app_server.server.conversations.subscriber_queues import SubscriberQueues
from app_server.server.rpc.backlog import SendBuffer
from app_server.server.rpc.outgoing import OutboundQueue
from app_server_protocol.engine.events import SessionEvent
from app_server_protocol.engine.notices import HistoryItemRecorded

if TYPE_CHECKING:
    from app_server.engine.session.facade import SessionHandle

MOST_WAITING = 4096
"""Maximum number of messages that wait here for a subscription while the conversation goes on; beyond it the oldest are
dropped.
"""


class Client(Struct, eq=False, weakref=True):
    """The client at the other end of a connection."""

    outgoing: OutboundQueue
    profile: ClientProfile
    caller: ClientContext
    """Environment and identity of the client, for the engine."""
    receives_all_threads: bool = True
    """Whether the client is notified of conversations that others opened."""
    has_cwd: bool = True
    """Whether the client has a working directory; if not, its requests name one."""
    speaks: set[ApiId] = msgspec.field(default_factory=set)
    """APIs over which the client can be notified of such conversations."""
    subscriptions: dict[str, str] = msgspec.field(default_factory=dict)
    """Conversations by the ids of the subscriptions that the client ends by their ids, the oldest first."""
    wants: Callable[[Message], bool] = lambda message: True
    """Function that returns whether the client is sent a notification that has a `method`."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send the messages of one event."""
        outgoing, further = self.outgoing, False
        for message in messages:
            if message.method and not self.wants(message):
                continue
            if isinstance(message, TextGrown):
                outgoing.send_text(message.lines, message.start, message.before, further=further)
            elif message.state is not None:
                outgoing.send_state(message.state, message.data, further=further)
            else:
                outgoing.send(message.data, further=further)
            further = True


def keep(messages: Iterable[Message], waiting: SendBuffer, *, most: int | None = None) -> None:
    """Queue messages for a client that is sent them later. `most` is the maximum number of messages; beyond it, the
    oldest are dropped.
    """
    for message in messages:
        if isinstance(message, TextGrown):
            waiting.add_text(message.lines, message.start, message.before)
        elif message.state is not None:
            waiting.add_state(message.state, message.data, last_only=False)
        else:
            waiting.add(message.data)
        if most is not None and len(waiting) > most:
            waiting.drop_first()


class Attachment(Struct):
    """The registration of one client at one API of a conversation, of which it is notified even without a
    subscription.
    """

    subscriptions: dict[str, bool] = msgspec.field(default_factory=dict)
    """Subscriptions by their ids: whether one wants the model's items in their original form, too."""
    waiting: SendBuffer | None = None
    """Messages that wait for the first subscription; None if none are kept."""

    def send(self, client: Client, messages: Sequence[Message]) -> None:
        if self.waiting is None:
            client.send(messages)
        else:
            keep(messages, self.waiting, most=MOST_WAITING)

    @property
    def raw(self) -> bool:
        return any(self.subscriptions.values())


class ApiChannel(Struct):
    """One API of one conversation."""

    api: ConversationApi
    adapter: ApiAdapter
    seats: dict[Client, Attachment] = msgspec.field(default_factory=dict)
    waiting: SendBuffer = msgspec.field(default_factory=SendBuffer)
    """Messages for the first subscriber."""
    subscribers: list[Client] = msgspec.field(default_factory=list)
    queues: list[SendBuffer] = msgspec.field(default_factory=list)
    """Queues of messages that wait for subscriptions."""
    wanting_raw: list[Client] = msgspec.field(default_factory=list)
    """Subscribers that want the model's items in their original form, too."""

    def seats_changed(self) -> None:
        """Update the subscribers for all later events."""
        self.subscribers = [client for client, seat in self.seats.items() if seat.subscriptions]
        self.wanting_raw = [client for client in self.subscribers if self.seats[client].raw]
        self.queues = [seat.waiting for seat in self.seats.values() if seat.waiting is not None]
        if not self.subscribers and not self.adapter.needs_identity:
            self.queues.append(self.waiting)

    def send(self, event: SessionEvent, live: LiveTurn) -> None:
        """Give the event to the adapter, and send its messages to the subscribers."""
        raw = self.wanting_raw
        messages = self.adapter.messages(event, live, raw=bool(raw))
        receivers = raw if raw and isinstance(event.event, HistoryItemRecorded) else self.subscribers
        for client in receivers if messages else ():
            client.send(messages)
        if self.queues and receivers is not raw:
            for queue in self.queues:
                keep(messages, queue, most=MOST_WAITING)

    def wait_for(self, client: Client, asked: Iterable[SessionEvent], live: LiveTurn) -> None:
        """Let the running turn, open questions and what follows wait for the subscription of a client."""
        seat = self.seats.setdefault(client, Attachment())
        if not seat.subscriptions:
            seat.waiting = SendBuffer()
            seat.send(client, self.adapter.snapshot(live))
            for event in asked:
                seat.send(client, self.adapter.messages(event, live, raw=False))

    def send_waiting(self, client: Client) -> None:
        """Send a subscriber the messages that waited for it, or for any subscriber."""
        seat = self.seats[client]
        own, seat.waiting = seat.waiting, None
        if own is not None:
            self.waiting.clear()  # the client was answered what the conversation had when its own queue began
        client.outgoing.send_all(self.waiting if own is None else own)

    def followers(self) -> list[Client]:
        """Return the subscribers, and the clients for which messages wait."""
        return [each for each, seat in self.seats.items() if seat.subscriptions or seat.waiting is not None]

    def take_seats(self, was: ApiChannel, clients: Iterable[Client], told: Sequence[Message]) -> None:
        """Give clients the seats that they had, and send them these messages."""
        for client in clients:
            seat = self.seats[client] = was.seats[client]
            seat.send(client, told)


class Subscriptions:
    """Adapters and subscribers of one conversation, and the lines that they are sent."""

    def __init__(self, conversation_id: str, session: SessionHandle, clients: Collection[Client]) -> None:
        """Begin without APIs. `clients` are those of the server."""
        self._id, self._session, self._clients = conversation_id, session, clients
        self.apis: dict[ApiId, ApiChannel] = {}
        """The APIs that are sent each event."""
        self._followers = SubscriberQueues()
        self._elsewhere = False
        self._opening = False
        self.left = False
        """Whether a client with a seat has left."""
        self.live_turn = LiveTurn()
        self.on_watched: Callable[[bool], None] = lambda watched: None
        """Called when the subscribers may have changed, with whether there are any."""
        self.followed = anyio.Event()
        """Set while events are taken: a client is subscribed, or an API follows without subscribers."""
        self.preferred: dict[Client, ApiId] = {}
        """The API whose request began the client's last turn, by client."""

    # --- subscribers
    @property
    def events_wait(self) -> bool:
        """Whether all events wait in the session: for the first client that uses the conversation, or for the client
        that is opening it, as long as no other client is subscribed.
        """
        return not (self.apis or self.left) or (self._opening and not self._followers.queues)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Let events wait for the client that opens the conversation."""
        self._opening = True
        try:
            yield
        finally:
            self._opening = False
            self._follow()

    def adapter(self, api: ConversationApi, client: Client | None) -> ApiAdapter:
        """Return the adapter of an API, which is made if there is none. `client` gets a seat, so it is notified."""
        channel = self._channel(api)
        if client is not None:
            channel.seats.setdefault(client, Attachment())
        return channel.adapter

    def add(self, client: Client, id: str, api: ConversationApi, *, raw: bool) -> ApiAdapter:
        """Subscribe to an API and send the events that waited for it. Subscriptions of one client share a seat, so that
        each event is sent to it once per API.
        """
        channel = self._channel(api)
        channel.seats.setdefault(client, Attachment()).subscriptions[id] = raw
        channel.send_waiting(client)
        self._follow()
        return channel.adapter

    def join(self, client: Client, id: str, api: ConversationApi) -> ApiAdapter:
        """Subscribe to an API, and send the running turn as it is now before what follows. A client that is subscribed
        already is sent nothing.
        """
        channel = self._channel(api)
        if not channel.seats.setdefault(client, Attachment()).subscriptions:
            client.send(channel.adapter.snapshot(self.live_turn))
            self.add(client, id, api, raw=False)
        return channel.adapter

    def join_later(self, client: Client, api: ConversationApi, asked: Iterable[SessionEvent]) -> None:
        """Let the running turn as it is now, with the open questions `asked`, and what follows wait for the client's
        first subscription. For a client that is subscribed already nothing waits.
        """
        self._channel(api).wait_for(client, asked, self.live_turn)
        self._follow()

    def remove(self, client: Client, id: str) -> None:
        """End a subscription, if there is one of that id."""
        for channel in self.apis.values():
            if client in channel.seats:
                channel.seats[client].subscriptions.pop(id, None)
        self._follow()

    def take_seats(self, before: Subscriptions) -> list[tuple[Client, ApiAdapter]]:
        """Subscribe the clients that were subscribed to `before`, which was reverted, and notify them. Return these
        clients with their adapters.
        """
        taken = []
        for was in before.apis.values():
            here = [client for client in was.followers() if client in self._clients]
            told = was.adapter.on_reverted()
            if here and told is not None:
                channel = self._channel(was.api)
                channel.take_seats(was, here, told)
                self._follow()
                for client in channel.subscribers[:1]:
                    channel.send_waiting(client)
                taken += [(client, channel.adapter) for client in channel.subscribers if client in here]
        return taken

    def leave(self, client: Client) -> None:
        """Remove a client that has left. The conversation goes on without it."""
        self.preferred.pop(client, None)
        for each in list(self.apis.values()):
            self.leave_api(client, each.api)

    def leave_api(self, client: Client, api: ConversationApi) -> None:
        """Remove a client from one API. An adapter that belongs to its clients is removed with the last of them."""
        channel = self.apis[api.id]
        left = channel.seats.pop(client, None)
        self.left |= left is not None
        if left is not None and not channel.seats and not channel.adapter.outlasts_clients:
            del self.apis[api.id]
        self._follow()

    def subscribers(self, api: ConversationApi) -> dict[Client, bool]:
        """Return the subscribers of an API, with whether they want the model's items in their original form, too."""
        return {client: seat.raw for client, seat in self.seats(api).items() if seat.subscriptions}

    def audience(self, api: ConversationApi) -> list[Client]:
        """Return the clients that are notified of the conversation over an API, whether subscribed or not."""
        here = self.seats(api)
        others = (each for each in self._clients if each not in here)
        return [*here, *(each for each in others if each.receives_all_threads and api.id in each.speaks)]

    @property
    def present(self) -> set[Client]:
        """Return the clients that have a seat at any API."""
        return {client for channel in self.apis.values() for client in channel.seats}

    @property
    def any(self) -> bool:
        """Whether any client is subscribed, or about to be."""
        return bool(self._followers.queues) or any(channel.followers() for channel in self.apis.values())

    # --- events
    def send_status(self, status: ConversationStatus) -> None:
        for channel in self.apis.values():
            messages = channel.adapter.status_changed(status)
            for client in self.audience(channel.api) if messages else ():
                channel.seats.get(client, Attachment()).send(client, messages)

    async def wait_for_capacity(self) -> None:
        """Wait while all subscribers are behind; if there are none, return at once."""
        await self._followers.wait_for_capacity()

    def on_session_replaced(self, *, continues: bool) -> None:
        """Tell every adapter whether the conversation goes on after the end of the session."""
        self._elsewhere = continues
        for channel in self.apis.values():
            channel.adapter.on_session_replaced(continues=continues)

    # --- clients to ask
    def reachable(self) -> dict[Client, list[ApiAdapter]]:
        """Return the clients that can be asked, with their adapters: that of the preferred API first, then the newest
        first.
        """
        return _reachable(self.apis, self.preferred)

    def adapters(self) -> list[ApiAdapter]:
        return [channel.adapter for channel in self.apis.values()]

    def seats(self, api: ConversationApi) -> dict[Client, Attachment]:
        """Return the seats at an API."""
        channel = self.apis.get(api.id)
        return {} if channel is None else channel.seats

    def _channel(self, api: ConversationApi) -> ApiChannel:
        channel = self.apis.get(api.id)
        if channel is None:
            channel = self.apis[api.id] = ApiChannel(api, api.new_adapter(self._id))
            if self._elsewhere:
                channel.adapter.on_session_replaced(continues=True)
            if channel.adapter.needs_identity:
                self._session.store_identity()
            self._follow()
        return channel

    def _follow(self) -> None:
        """Update the subscribers and their queues after a change of the subscriptions."""
        for channel in self.apis.values():
            channel.seats_changed()
        subscribed = (each.outgoing for channel in self.apis.values() for each in channel.subscribers)
        self._followers.become(subscribed)
        self.live_turn.kept_tail = max(KEPT_TAIL, *(each.high_water for each in self._followers.queues), 0)
        # Without subscribers, events wait for one that may want the model's items.
        wants_raw = any(channel.wanting_raw for channel in self.apis.values())
        self._session.emit_raw_items(wants_raw or not self.any)
        self.on_watched(self.any)
        follows = self.left or any(
            channel.adapter.needs_identity or channel.subscribers for channel in self.apis.values()
        )
        if follows and not self.events_wait:
            self.followed.set()
        elif self.followed.is_set():
            self.followed = anyio.Event()


def _reachable(
    apis: dict[ApiId, ApiChannel], preferred: Mapping[Client, ApiId]
) -> dict[Client, list[ApiAdapter]]:
    found = dict[Client, list[ApiAdapter]]()
    for id, channel in reversed(apis.items()):
        for client in channel.subscribers:
            adapters = found.setdefault(client, [])
            adapters.insert(0 if preferred.get(client) == id else len(adapters), channel.adapter)
    return found
