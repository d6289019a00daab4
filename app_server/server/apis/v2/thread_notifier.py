"""Notifications of the thread API that handlers send, and the clients that receive them: one client, all that use this
API; and warnings about the settings, which threads then do not repeat. Light, because every module of handlers loads
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakSet

from msgspec import Struct

from app_server.engine.config.settings_service import UserSettings
from app_server.engine.config.tolerance import joined
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ConfigError, FilePosition
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.v2 import client_hooks
from app_server.server.conversations.adapter import Message, OutboundMessage
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.jsonrpc import dump_notification
from app_server_protocol.method_table import Fields, S, ServerNotification
from app_server_protocol.policy import AskForApproval
from app_server_protocol.v2 import server as wire


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


def to_client(context: ConnectionContext) -> ThreadNotifier:
    """Return the notifier for the client of the connection."""
    return ThreadNotifier((context.client,), context.machine.wall_clock)


def to_everybody(context: ConnectionContext) -> ThreadNotifier:
    """Return the notifier for all clients of the server that use this API."""
    known, connected = context.shared.get(ThreadClients, ThreadClients), context.conversations.clients
    return to_client(context).to([each for each in known if each in connected])


def warn_of_callbacks(context: ConnectionContext) -> None:
    """Send a warning if what the client announced as callbacks cannot be read."""
    if context.client.profile.hooks is not None:
        _, problem = client_hooks.read_announced(context.client)
        if problem is not None:
            to_client(context).notify(wire.CONFIG_WARNING, summary=problem)


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


def tell_ignored(context: ConnectionContext, notice: str) -> None:
    """Warn one client about parameters that were ignored."""
    to_client(context).notify(wire.CONFIG_WARNING, summary=notice)
