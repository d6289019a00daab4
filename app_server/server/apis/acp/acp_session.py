"""One open session: its conversation, its options, its prompts, and the lines that are sent later; and the open
sessions of a connection, by id.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.config.config_values import Config
from app_server.engine.session.session_commands import ChangeSettings
from app_server.server.apis.acp.acp_adapter import SessionAdapter
from app_server.server.apis.acp.acp_client import AcpClient
from app_server.server.apis.acp.acp_commands import CommandList
from app_server.server.apis.acp.acp_errors import session_not_found
from app_server.server.apis.acp.formatting import one_line
from app_server.server.apis.acp.prompt_turns import PromptTurns
from app_server.server.apis.acp.session_options import SessionOptions, mode_of
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.conversations.adapter import ApiId, ConversationApi, Message
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.acp.updates import (
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    SessionUpdate,
)
from app_server_protocol.engine.events import SessionEvent, SettingsChanged, TurnEnded
from app_server_protocol.engine.thread_settings import RIGHTS, UNCHANGED, UNSET, SettingsPatch
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.server.apis.acp.session_hooks import SessionHooks

log = logging.getLogger(__name__)


class AcpSession:
    """One open session, which acts on the events that its adapter reports."""

    def __init__(self, live: LiveConversation, others: Sessions, options: SessionOptions) -> None:
        """Begin without prompts. `others` are the open sessions of the connection."""
        self.id, self.live, self.options = live.id, live, options
        self._others, self._connection = others, others.connection
        self.api = ConversationApi(ApiId("acp", self), lambda _id: self.adapter)
        self.context = ConversationContext(others.connection, live, self.api)
        self.adapter = SessionAdapter(
            live.id,
            others.client,
            observe=self._observe,
            flush_at=self._flush_at,
            clock=self._connection.machine.monotonic,
            is_foreign=self._is_foreign,
        )
        self._known = live.session.facts.settings
        self.turns = PromptTurns(self.context)
        self.commands = CommandList()
        self.hooks: SessionHooks | None = None
        """Hooks that the session was shown; None before the first `/hooks`."""
        self.lists_models: Config | None = None
        """Configuration of the session if its provider can be asked for more models, else None."""
        self.title: str | None = None
        """Title of the session; None if it is not known yet."""
        self._title_sent = self._flush_is_due = False
        self.moved = anyio.Event()
        """Event that is not set while the session moves to another conversation."""
        self.moved.set()
        live.subscriptions.adapter(self.api, self._connection.client)

    @property
    def cwd(self) -> str:
        return self.live.session.facts.settings.cwd

    # --- going back
    @asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Keep the session open for the block, in which its conversation ends, and goes on by `go_on_in`."""
        self.moved = anyio.Event()
        try:
            yield
        finally:
            self.moved.set()

    def go_on_in(self, live: LiveConversation) -> None:
        """Show the client this conversation from now on: it has replaced the session's, which was reverted."""
        live.session.take_over_from(self.live.session)
        self.live, self.hooks = live, None
        self._known = live.session.facts.settings
        self.context = ConversationContext(self._connection, live, self.api)
        self.turns.go_on_in(self.context)
        live.subscriptions.adapter(self.api, self._connection.client)
        self._others.follow(self)

    # --- choices
    def choose(self, options: SessionOptions) -> None:
        """Set the options for later requests, and send the client all of them."""
        before, self.options = self.options, options
        if options == before:
            return
        self.live.session.do(ChangeSettings(_change(before, options), now=True))
        self.send(ConfigOptionUpdate(config_options=options.config_options()))
        if options.mode != before.mode:
            self.send(CurrentModeUpdate(current_mode_id=options.mode))

    def take_settings(self) -> Iterator[SessionUpdate]:
        """Adopt settings that another client has changed; yield updates about those that differ from this session's
        options.
        """
        known, now = self._known, self.live.session.facts.settings
        self._known, before = now, self.options
        mode = mode_of(now)
        if now.part(RIGHTS) != known.part(RIGHTS):
            self.options = replace(self.options, mode=mode if mode in before.permissions else before.mode)
        if now.model != known.model:
            self.options = self.options.with_model(now.model)
        if now.effort != known.effort:
            self.options = replace(self.options, effort=now.effort)
        if self.options != before:
            yield ConfigOptionUpdate(config_options=self.options.config_options())
        if self.options.mode != before.mode:
            yield CurrentModeUpdate(current_mode_id=self.options.mode)

    # --- lines
    def send(self, update: SessionUpdate) -> None:
        """Send an update, after the lines that wait."""
        self._write(self.adapter.send(update))

    def send_commands(self) -> None:
        """Send the slash commands of the session."""
        self.send(AvailableCommandsUpdate(available_commands=tuple(self.commands.shown())))

    def send_message(self, text: str) -> None:
        """Send a message of the agent that no model wrote."""
        self._write(self.adapter.send_message(self._connection.machine.new_id(), text))

    def _write(self, messages: Sequence[Message]) -> None:
        """Send messages after those that are queued; none if the client has left the session."""
        client = self._connection.client
        if (seat := self.live.subscriptions.seats(self.api).get(client)) is not None:
            seat.send(client, messages)

    # --- what the adapter reports
    def _observe(self, event: SessionEvent) -> Sequence[SessionUpdate]:
        """Follow the turns; return the updates that are sent after the event: settings that another client has changed,
        or the title.
        """
        self.turns.observe(event)
        if isinstance(event.event, SettingsChanged):
            return tuple(self.take_settings())
        if not isinstance(event.event, TurnEnded) or self.title is None or self._title_sent:
            return ()
        self._title_sent = True
        return (SessionInfoUpdate(title=self.title),)

    def _is_foreign(self, turn_id: str | None) -> bool:
        """Return whether a turn may have a message of another client."""
        return self.live.shared_with_others(self._connection.client) and not self.turns.awaits(turn_id)

    def _flush_at(self, due: float) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._connection.background.start_soon(self._flush, due, name="paced updates")

    async def _flush(self, due: float) -> None:
        await anyio.sleep(max(due - self._connection.machine.monotonic(), 0.0))
        self._flush_is_due = False
        try:
            self._write(self.adapter.flush())
        except Exception:  # one broken session must not take the others along
            log.exception("paced updates")

    def retitle(self, title: str) -> None:
        """Take over a title that a client has set, and send it."""
        self.title, self._title_sent = title, True
        self.send(SessionInfoUpdate(title=title))

    def title_from(self, text: str) -> None:
        """Make the user's first message the title, if there is none yet."""
        if self.title is None and (title := one_line(text)):
            self.title = title


def _change(before: SessionOptions, now: SessionOptions) -> SettingsPatch:
    """Return the difference between the options as a change of the engine's settings."""
    rights = UNCHANGED if now.mode == before.mode else now.permissions[now.mode]
    return replace(
        rights,
        model=now.model if now.model != before.model else UNSET,
        effort=now.effort if now.effort != before.effort else UNSET,
    )


SUBSCRIPTION = "session"


def sessions_of(context: ConnectionContext) -> Sessions:
    """Return the sessions of a connection."""
    return context.own.get(Sessions, lambda: Sessions(context))


class Sessions(Struct, eq=False):
    """The open sessions of one connection."""

    connection: ConnectionContext
    client: AcpClient = msgspec.field(default_factory=AcpClient)
    """Capabilities that the client announced."""
    _open: dict[str, AcpSession] = msgspec.field(default_factory=dict)

    def find(self, id: str) -> AcpSession | None:
        return self._open.get(id.lower())

    def get(self, id: str) -> AcpSession:
        """Return the open session with that id. Raises RpcError."""
        session = self.find(id)
        if session is None:
            raise session_not_found(id)
        return session

    def add(self, live: LiveConversation, options: SessionOptions) -> AcpSession:
        """Store a session until its conversation ends."""
        session = self._open[live.id] = AcpSession(live, self, options)
        self.connection.background.start_soon(self._watch, session, name=f"session {live.id}")
        return session

    def follow(self, session: AcpSession) -> None:
        """Send the client the running turn and all events from now on. The client knows the session's id."""
        session.live.join(self.connection.client, SUBSCRIPTION, session.api)

    def renamed(self, id: str, title: str, by: Client) -> None:
        """Take over the title that a client of any API gave a session, if it is open here."""
        if (session := self.find(id)) is not None:
            session.retitle(title)

    def leave(self, session: AcpSession) -> bool:
        """Leave a session that other clients have open. Return False if no other client has, and the session may be
        ended.
        """
        if not session.live.shared_with_others(self.connection.client):
            return False
        session.turns.session_ended()
        session.live.subscriptions.leave_api(self.connection.client, session.api)
        self._open.pop(session.id, None)
        return True

    async def _watch(self, session: AcpSession) -> None:
        live = None
        while live is not session.live:
            live = session.live
            await live.gone.wait()
            await session.moved.wait()
        session.turns.session_ended()
        if self._open.get(session.id) is session:
            del self._open[session.id]
