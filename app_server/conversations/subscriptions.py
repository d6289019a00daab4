"""The APIs that show one conversation, who subscribed to them, and who is asked there.

Each API has one adapter here, which sees every event; who subscribed decides what is sent. Events wait in the session
until somebody subscribes, unless an API follows the conversation by turns and items: then the conversation goes on
without subscribers, and what the others would have been sent waits here, up to a bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.conversations.adapter import (
    ApiAdapter,
    ApiId,
    ClientLine,
    ConversationApi,
    ConversationStatus,
)
from app_server.conversations.followers import Followers
from app_server.conversations.so_far import SoFar
from app_server.core.caller import Caller
from app_server.identity import ClientProfile
from app_server.rpc.backlog import SharedLines
from app_server.rpc.outgoing import Outgoing
from app_server_protocol.engine.events import SessionEvent, TurnStarted
from app_server_protocol.events.turn import RawResponseItemEvent

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle

MOST_WAITING = 4096
"""Events that wait here for the first subscriber of an API, while the conversation goes on; then the oldest go."""

SHARED_BYTES = 16 * 1024
"""Bytes of lines that clients share, until it is looked which of them have much to read."""


class Client(Struct, eq=False, weakref=True):
    """Peer at the other end of a connection."""

    outgoing: Outgoing
    profile: ClientProfile
    caller: Caller
    """What the engine takes from it."""
    hears_all: bool = True
    """Whether it is told of conversations that others opened."""
    has_folder: bool = True
    """Whether it has a working directory; else its requests name one."""
    speaks: set[ApiId] = msgspec.field(default_factory=set)
    """The APIs in whose words it can be told of them."""
    subscriptions: dict[str, str] = msgspec.field(default_factory=dict)
    """The conversations of those that it ends by their ids, the oldest first."""
    wants: Callable[[ClientLine], bool] = lambda line: True
    """Whether it is sent a notification that names its method."""

    def send(self, lines: Iterable[ClientLine], *, behind: bool = False) -> None:
        """Send what one event says. `behind`: others read while the client does not, so what can be joined is."""
        further = False
        for line in lines:
            if line.method and not self.wants(line):
                continue
            if behind and line.part is not None:
                self.outgoing.send_missed(line.part, further=further)
            elif behind and line.state is not None:
                self.outgoing.send_state(line.state, line.data, further=further)
            else:
                self.outgoing.send(line.data, further=further)
            further = True


class Seat(Struct):
    """The place of one client at one API of a conversation, of which it is told also without a subscription."""

    subscriptions: dict[str, bool] = msgspec.field(default_factory=dict)
    """By their ids, whether one wants the model's items as they came, too."""
    held: deque[ClientLine] | None = None
    """Lines for a client that joins and is told first what it joins; None: it is sent every line at once."""
    begun: set[str] = msgspec.field(default_factory=set)
    """The turns that have begun while lines were held."""

    def send(self, client: Client, lines: Sequence[ClientLine], *, behind: bool) -> None:
        if self.held is None:
            client.send(lines, behind=behind)
        else:
            self.held.extend(lines)

    @property
    def raw(self) -> bool:
        return any(self.subscriptions.values())


class FollowedApi(Struct):
    """One API of one conversation."""

    api: ConversationApi
    adapter: ApiAdapter
    seats: dict[Client, Seat] = msgspec.field(default_factory=dict)
    primed: Sequence[ClientLine] = ()
    """What its adapter made of the turn that ran when the adapter was made."""
    waiting: deque[SessionEvent] = msgspec.field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    subscribers: list[Client] = msgspec.field(default_factory=list)
    wanting_raw: list[Client] = msgspec.field(default_factory=list)
    """Those who want the model's items as they came, too."""
    shared: SharedLines = msgspec.field(default_factory=SharedLines)
    """The last pieces of texts for all subscribers together."""

    def seats_changed(self) -> None:
        """Find who subscribed, for all events that follow."""
        self.shared.close()
        self.subscribers = [client for client, seat in self.seats.items() if seat.subscriptions]
        self.wanting_raw = [client for client in self.subscribers if self.seats[client].raw]

    def prime(self, so_far: SoFar) -> None:
        """Let the adapter know what goes on."""
        made = (self.adapter.lines(event, subscribed=True, raw=False) for event in so_far.events())
        self.primed = [line for lines in made for line in lines]

    def send(self, event: SessionEvent, followers: Followers) -> None:
        """Hand the event to the adapter, and its lines to who subscribed. `followers` are those of all APIs."""
        raw = self.wanting_raw
        lines = self.adapter.lines(event, subscribed=bool(self.subscribers), raw=bool(raw))
        if len(self.subscribers) > 1 and lines and all(line.part is not None for line in lines):
            self._send_text(lines, followers)
            return
        only_raw = raw and isinstance(event.event, RawResponseItemEvent)
        for client in (raw if only_raw else self.subscribers) if lines else ():
            seat = self.seats[client]
            seat.send(client, lines, behind=followers.leave_behind(client.outgoing))
            if seat.held is not None and isinstance(event.event, TurnStarted) and event.turn_id:
                seat.begun.add(event.turn_id)

    def send_waiting(self, followers: Followers) -> None:
        for event in list(self.waiting):
            self.send(event, followers)
        self.waiting.clear()

    def take_seats(self, was: FollowedApi, clients: Iterable[Client], told: Sequence[ClientLine]) -> None:
        """Give clients the places that they had, and send them these lines."""
        for client in clients:
            seat = self.seats[client] = was.seats[client]
            seat.send(client, told, behind=False)

    def _send_text(self, lines: Sequence[ClientLine], followers: Followers) -> None:
        """Send pieces of a text to all subscribers as shared lines, but to those who have a reason for others."""
        if self.shared.size > SHARED_BYTES:
            self.shared.close()
            self.shared = SharedLines()
        shared = self.shared
        for client in self.subscribers:
            outgoing = client.outgoing
            if outgoing.shares(shared):
                continue
            seat, behind = self.seats[client], followers.leave_behind(client.outgoing)
            if behind or seat.held is not None or not all(map(client.wants, lines)):
                seat.send(client, lines, behind=behind)
            else:
                outgoing.send_shared(shared)
        if shared.readers:
            for line in lines:
                shared.add(line.data)


class Subscriptions:
    """Adapters and subscribers of one conversation, and the lines that they are sent."""

    def __init__(self, conversation_id: str, session: SessionHandle, clients: Collection[Client]) -> None:
        """`clients` are those of the server."""
        self._id, self._session, self._clients = conversation_id, session, clients
        self._apis: dict[ApiId, FollowedApi] = {}
        self._followers = Followers()
        self._elsewhere = False
        self.left = False
        """Whether a client has left that was here."""
        self.so_far = SoFar()
        self.on_watched: Callable[[bool], None] = lambda watched: None
        """Told whenever somebody may have come or gone, whether anybody is subscribed."""
        self.followed = anyio.Event()
        """Set while events are taken: somebody is subscribed, or an API follows without subscribers."""
        self._preferred: dict[Client, ApiId] = {}
        """By client, the API whose request began its last turn."""

    # --- who subscribed
    def adapter(self, api: ConversationApi, client: Client | None) -> ApiAdapter:
        """Return the adapter of an API, made where there is none yet. `client` is told of the conversation there."""
        channel = self._channel(api)
        if client is not None:
            channel.seats.setdefault(client, Seat())
        return channel.adapter

    def add(self, client: Client, id: str, api: ConversationApi, *, raw: bool) -> ApiAdapter:
        """Subscribe to an API and send what waited for it. Subscriptions of one client share a seat, so that each event
        reaches it once in the words of an API.
        """
        channel = self._channel(api)
        channel.seats.setdefault(client, Seat()).subscriptions[id] = raw
        self._follow()
        channel.send_waiting(self._followers)
        return channel.adapter

    def hold(self, client: Client, id: str, api: ConversationApi) -> set[str] | None:
        """Subscribe a client to an API, and hold its lines until `release`. Return what will have the turns that begin
        meanwhile; None where it was subscribed before, and nothing is held.
        """
        seat = self._channel(api).seats.setdefault(client, Seat())
        if seat.subscriptions:
            return None
        seat.held, seat.begun = deque(), set()
        self.add(client, id, api, raw=False)
        return seat.begun

    def hold_first(self, client: Client, api: ConversationApi, lines: Sequence[ClientLine]) -> None:
        """Hold these lines ahead of all others, and keep no more than fit into the bound while the client is silent."""
        seat = self._channel(api).seats[client]
        seat.held = deque((*lines, *(seat.held or ())), maxlen=MOST_WAITING)

    def release(self, client: Client, api: ConversationApi, before: Sequence[ClientLine]) -> None:
        """Send these lines, then those that were held."""
        seat = self.seats(api).get(client)
        if seat is not None and seat.held is not None:
            held, seat.held = seat.held, None
            seat.send(client, (*before, *held), behind=self.is_behind(client))

    def primed(self, api: ConversationApi) -> Sequence[ClientLine]:
        """Return, once, what the adapter of an API made of the turn that ran when it was made."""
        channel = self._channel(api)
        lines, channel.primed = channel.primed, ()
        return lines

    def remove(self, client: Client, id: str) -> None:
        """End a subscription, if there is one of that id."""
        for channel in self._apis.values():
            if client in channel.seats and channel.seats[client].subscriptions.pop(id, None) is not None:
                channel.seats[client].held = None
        self._follow()

    def take_seats(self, before: Subscriptions) -> list[tuple[Client, ApiAdapter]]:
        """Go on for who was subscribed before it was taken back, and tell them. Return whom, and where."""
        taken = []
        for was in before._apis.values():
            here = [client for client in was.subscribers if client in self._clients]
            told = was.adapter.taken_back()
            if here and told is not None:
                channel = self._channel(was.api)
                channel.take_seats(was, here, told)
                taken += [(client, channel.adapter) for client in here]
                self._follow()
                channel.send_waiting(self._followers)
        return taken

    def leave(self, client: Client) -> None:
        """Forget a client that has left. The conversation goes on without it."""
        self._preferred.pop(client, None)
        for each in list(self._apis.values()):
            self.leave_api(client, each.api)

    def leave_api(self, client: Client, api: ConversationApi) -> None:
        """Forget a client in one API, and the adapter with the last client that it belongs to."""
        channel = self._apis[api.id]
        left = channel.seats.pop(client, None)
        self.left |= left is not None
        if left is not None and not channel.seats and not channel.adapter.outlasts_clients:
            del self._apis[api.id]
        self._follow()

    def subscribers(self, api: ConversationApi) -> dict[Client, bool]:
        """Return who subscribed to an API, and whether they want the model's items as they came, too."""
        return {client: seat.raw for client, seat in self.seats(api).items() if seat.subscriptions}

    def audience(self, api: ConversationApi) -> list[Client]:
        """Return who is told of the conversation in the words of an API, whether subscribed or not."""
        here = self.seats(api)
        others = (each for each in self._clients if each not in here)
        return [*here, *(each for each in others if each.hears_all and api.id in each.speaks)]

    @property
    def present(self) -> set[Client]:
        """Return who has a seat at any API."""
        return {client for channel in self._apis.values() for client in channel.seats}

    @property
    def any(self) -> bool:
        """Whether anybody is subscribed."""
        return bool(self._followers.queues)

    def is_behind(self, client: Client) -> bool:
        """Tell whether a client has much to read while the conversation goes on for others who follow it."""
        return self._followers.leave_behind(client.outgoing)

    # --- what is sent
    def send(self, event: SessionEvent) -> None:
        """Send an event to who subscribed; for APIs without subscribers it waits."""
        self.so_far.take(event)
        for channel in self._apis.values():
            if channel.adapter.needs_identity or channel.subscribers:
                channel.send(event, self._followers)
            else:
                channel.waiting.append(event)

    def send_status(self, status: ConversationStatus) -> None:
        for channel in self._apis.values():
            lines = channel.adapter.status_changed(status)
            for client in self.audience(channel.api):
                channel.seats.get(client, Seat()).send(client, lines, behind=self.is_behind(client))

    async def wait_for_capacity(self) -> None:
        """Wait while everybody who is subscribed is behind; where nobody is, return at once."""
        await self._followers.wait_for_capacity()

    def continue_elsewhere(self, *, continues: bool) -> None:
        """Let every adapter know whether the end of the session is not the conversation's."""
        self._elsewhere = continues
        for channel in self._apis.values():
            channel.adapter.continue_elsewhere(continues=continues)

    # --- who is asked
    def prefer(self, client: Client, api: ConversationApi) -> None:
        """Ask the client in the words of this API what the turns to come ask, where it is subscribed there."""
        self._preferred[client] = api.id

    def reachable(self, *, joining: bool = False) -> dict[Client, list[ApiAdapter]]:
        """Return who can be asked, with the preferred API first and the others from the last one on. `joining`: also
        who is not asked yet, because it does not know what it joins.
        """
        return _reachable(self._apis, self._preferred, joining=joining)

    def adapters(self) -> list[ApiAdapter]:
        return [channel.adapter for channel in self._apis.values()]

    def seats(self, api: ConversationApi) -> dict[Client, Seat]:
        """Return the seats at an API."""
        channel = self._apis.get(api.id)
        return {} if channel is None else channel.seats

    def _channel(self, api: ConversationApi) -> FollowedApi:
        channel = self._apis.get(api.id)
        if channel is None:
            adapter = api.make_adapter(self._id, self.so_far.ids.copy())
            channel = self._apis[api.id] = FollowedApi(api, adapter)
            if self._elsewhere:
                channel.adapter.continue_elsewhere(continues=True)
            if channel.adapter.needs_identity:
                self._session.store_identity()
            channel.prime(self.so_far)
            self._follow()
        return channel

    def _follow(self) -> None:
        """Find who is subscribed, after a change of that."""
        for channel in self._apis.values():
            channel.seats_changed()
        subscribed = (each.outgoing for channel in self._apis.values() for each in channel.subscribers)
        self._followers.become(subscribed)
        self.on_watched(self.any)
        follows = self.left or any(
            channel.adapter.needs_identity or channel.subscribers for channel in self._apis.values()
        )
        if follows:
            self.followed.set()
        elif self.followed.is_set():
            self.followed = anyio.Event()


def _reachable(
    apis: dict[ApiId, FollowedApi], preferred: Mapping[Client, ApiId], *, joining: bool
) -> dict[Client, list[ApiAdapter]]:
    found = dict[Client, list[ApiAdapter]]()
    for id, channel in reversed(apis.items()):
        for client in channel.subscribers:
            if joining or channel.seats[client].held is None:
                adapters = found.setdefault(client, [])
                adapters.insert(0 if preferred.get(client) == id else len(adapters), channel.adapter)
    return found
