"""Services that the handlers of the thread API share in one connection: notifications about threads, and warnings about
the settings, which threads then do not repeat. Light, because every module that serves threads loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import Struct

from app_server.engine.config.settings_service import UserSettings
from app_server.engine.config.tolerance import joined
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ConfigError, FilePosition
from app_server.server.apis.v2 import client_hooks
from app_server.server.apis.v2.v2_errors import parse_thread_id, thread_not_found
from app_server.server.conversations.adapter import Message, OutboundMessage
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.jsonrpc import dump_notification
from app_server_protocol.method_table import Fields, S, ServerNotification
from app_server_protocol.policy import AskForApproval
from app_server_protocol.v2 import server as wire
from app_server_protocol.v2.items import SERVER_REQUEST_RESOLVED

if TYPE_CHECKING:
    from app_server.engine.client_services import Host
    from app_server.engine.hooks.listed_hooks import ListedHooks
    from app_server.engine.support.lazy import Lazy
    from app_server.server.apis.api_services import ServerServices
    from app_server.server.apis.v2.loaded_threads import ReadingContext
    from app_server.server.conversations.adapter import ConversationApi
    from app_server.server.conversations.idle import IdleReaper
    from app_server.server.conversations.live import AttachHandle, LiveConversation
    from app_server.server.conversations.manager import ConversationManager


SUBSCRIPTION = "threads"
"""The one subscription that a client has to a thread over this API."""


class ThreadContext(Struct, frozen=True, kw_only=True):
    """Services of the handlers for threads."""

    config: UserSettings
    conversations: ConversationManager
    client: Client
    notifier: ThreadNotifier
    api: ConversationApi
    reading: ReadingContext
    unloader: IdleReaper
    host: Host

    def loaded(self, thread_id: str) -> LiveConversation:
        """Return the open thread. Raises RpcError if it is not open."""
        return loaded(self.conversations, thread_id)

    def subscribe(self, live: LiveConversation, *, raw: bool = False) -> None:
        """Subscribe the client to all events from now on."""
        live.subscribe(self.client, SUBSCRIPTION, self.api, raw=raw)
        self.offer_callbacks(live)

    def joining(self, live: LiveConversation) -> AbstractContextManager[AttachHandle]:
        """Subscribe the client from now on, and hold its messages until it has entered."""
        self.offer_callbacks(live)
        return live.joining(self.client, SUBSCRIPTION, self.api)

    def offer_callbacks(self, live: LiveConversation) -> None:
        """Make the callbacks that the client announced hooks of a thread that it follows."""
        if self.client.profile.hooks is not None:
            client_hooks.offer_callbacks(self.client, live, partial(self._resolve, live.id))

    def _resolve(self, thread_id: str, request_id: int) -> None:
        """Tell the client that a request needs no answer any more."""
        self.notifier.notify(SERVER_REQUEST_RESOLVED, thread_id=thread_id, request_id=request_id)

    def to_audience(self, thread_id: str) -> ThreadNotifier:
        """Return the notifier for this client and all clients that have the thread open."""
        live = self.conversations.find(thread_id)
        audience = self.conversations.hear_all if live is None else live.subscriptions.audience
        return self.notifier.to(
            [self.client, *(each for each in audience(self.api) if each is not self.client)]
        )


def loaded(conversations: ConversationManager, thread_id: str) -> LiveConversation:
    """Return the open thread. Raises RpcError if it is not open."""
    live = conversations.find(thread_id) or conversations.find(parse_thread_id(thread_id))
    if live is None:
        raise thread_not_found(thread_id)
    return live


class ThreadServices(Struct, frozen=True):
    """Services of every family of methods."""

    server: ServerServices
    notifier: ThreadNotifier
    threads: Lazy[ThreadContext]
    hooks: Lazy[ListedHooks]
    """The hooks that this client has listed, to which it can agree."""


class ThreadNotifier(Struct, frozen=True):
    clients: Sequence[Client]
    now: Callable[[], float]
    """Seconds since 1970."""

    def to(self, clients: Sequence[Client]) -> ThreadNotifier:
        return ThreadNotifier(clients, self.now)

    async def wait_for_capacity(self) -> None:
        for client in self.clients:
            await client.outgoing.wait_for_capacity()

    def notify(self, row: ServerNotification[Fields, S], *args: Fields.args, **fields: Fields.kwargs) -> None:
        """Send the notification to the clients that have not opted out of it."""
        params = row.make(*args, **fields).to_json()
        line = OutboundMessage(dump_notification(row.method, params, int(self.now() * 1000)), row.method)
        for client in self.clients:
            client.send((line,))


def warn_of_callbacks(client: Client, notifier: ThreadNotifier) -> None:
    """Send a warning if what the client announced as callbacks cannot be read."""
    if client.profile.hooks is not None:
        _, problem = client_hooks.read_announced(client)
        if problem is not None:
            notifier.notify(wire.CONFIG_WARNING, summary=problem)


def to_everybody(server: ServerServices, notifier: ThreadNotifier) -> ThreadNotifier:
    """Return the notifier for all clients of the server that use this API."""
    known, connected = server.shared.get(ThreadClients, ThreadClients), server.conversations.clients
    return notifier.to([each for each in known if each in connected])


class ThreadClients(WeakSet[Client]):
    """The clients of a server that use this API, or did."""


class NotificationFilter:
    """Filter of notifications that one client has opted out of, or was sent before."""

    def __init__(self, client: Client) -> None:
        self._profile = client.profile
        self.warnings: frozenset[str] = frozenset()
        """Warnings about the settings that the client was sent before."""
        self._limits: object = wire.RateLimitSnapshot()

    def wants(self, message: Message) -> bool:
        if message.method in self._profile.opted_out:
            return False
        if message.news is None:
            return True
        if isinstance(message.news, str):
            return message.news not in self.warnings
        before, self._limits = self._limits, message.news
        return before != message.news


def warn_of_settings(source: UserSettings, notifier: ThreadNotifier) -> frozenset[str]:
    """Send warnings about the settings, also about settings with which no thread can begin: a client may not begin one
    for long. Return the warnings that threads need not repeat.
    """

    def warn(summary: str, place: FilePosition | None, details: str | None = None) -> None:
        at = None if place is None else wire.TextPosition(line=place.line, column=place.column)
        notifier.notify(
            wire.CONFIG_WARNING,
            summary=summary,
            details=details,
            path=None if place is None else place.path,
            range=None
            if at is None
            else wire.TextRange(start=at, end=at),  # the end of the mistake is not known
        )

    try:
        config = source.load()
    except ConfigError as error:
        text = "The configuration cannot be used; threads cannot begin until it is corrected."
        warn(text, error.position, str(error))
        return frozenset()
    if config.thread.approval_policy is AskForApproval.UNTRUSTED:
        old = user_messages.UNTRUSTED_POLICY
        notifier.notify(wire.DEPRECATION_NOTICE, summary=f"{old.what}.", details=f"{old.advice}.")
    warnings = config.notices.warnings
    all_of_them = joined(warnings)
    if all_of_them is None:
        return frozenset()
    if len(warnings) == 1:
        warn(warnings[0].text, warnings[0].place)
    else:
        summary, _, each = all_of_them.partition("\n")
        warn(summary, None, each)
    return frozenset({all_of_them})


def tell_ignored(services: ServerServices, notice: str) -> None:
    """Warn one client about parameters that were ignored."""
    notifier = ThreadNotifier((services.client,), services.machine.wall_clock)
    notifier.notify(wire.CONFIG_WARNING, summary=notice)
