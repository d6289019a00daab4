"""Stored and loaded threads in the form that requests need."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from app_server import STORED_VERSION
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.storage.pagination import ThreadSummary
from app_server.engine.support.engine_errors import RolloutNotFound, RolloutUnreadable
from app_server.engine.support.lazy import Lazy
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.v2 import shared_threads
from app_server.server.apis.v2.thread_settings import thread_status
from app_server.server.apis.v2.turn_shapes import thread_view
from app_server.server.apis.v2.v2_adapter import running_turn
from app_server.server.apis.v2.v2_errors import parse_thread_id
from app_server.server.conversations.adapter import Activity, ConversationApi, ConversationStatus
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.ids import ConversationId, SessionOrigin
from app_server_protocol.rpc_errors import invalid_request
from app_server_protocol.v2.thread import Thread
from app_server_protocol.v2.turn import Turn
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.storage.stored_conversations import StoredConversations
    from app_server.engine.storage.turn_fold import WholeHistory
    from app_server.engine.storage.turn_pages import TurnHistory
    from app_server.server.conversations.live import LiveConversation
    from app_server.server.conversations.live_turn import LiveTurn
    from app_server.server.conversations.manager import ConversationManager

Result = TypeVar("Result")

NOT_LOADED = ConversationStatus(Activity.NOT_LOADED)


class LoadedThreads(Struct, frozen=True):
    """The threads that are loaded in this server."""

    context: ConnectionContext
    api: ConversationApi

    @property
    def conversations(self) -> ConversationManager:
        return self.context.conversations

    def loaded(self) -> list[str]:
        """Return the ids of the loaded threads, in the order in which they were opened."""
        return [live.id for live in self.conversations.all()]

    def status(self, thread_id: str) -> ConversationStatus:
        """Return the status of a thread; a thread that is not loaded has a status, too."""
        live = self.conversations.find(thread_id)
        return NOT_LOADED if live is None else live.status

    def running(self, thread_id: str) -> TurnRecord | None:
        """Return the running turn, with the items that have ended."""
        live = self.conversations.find(thread_id)
        return None if live is None else self._live_turn(live).record

    def running_turn(self, thread_id: str) -> Turn | None:
        """Return the running turn, with the items that go on."""
        live = self.conversations.find(thread_id)
        return None if live is None else running_turn(self._live_turn(live))

    def summary(self, thread_id: str) -> ThreadSummary | None:
        """Return a summary of a loaded thread as it was opened, without reading its file; it may never be stored."""
        live = self.conversations.find(thread_id)
        if live is None:
            return None
        settings, head = live.session.facts.settings, live.session.facts.stored_head
        opened_at = int(live.opened_at)
        return ThreadSummary(
            id=live.id,
            path=live.rollout_path,
            preview=live.session.facts.first_words if live.rollout_path is None else "",
            timestamp=None if head is None else head.timestamp,
            created_at=opened_at if head is None else int(datetime.fromisoformat(head.timestamp).timestamp()),
            updated_at=opened_at,
            cwd=settings.cwd,
            cli_version=STORED_VERSION,
            originator=self.context.handshake.user_agent.originator,
            source=SessionOrigin.VSCODE,
            git=None if head is None else head.git,
            forked_from=live.forked_from,
            provider=live.session.facts.config.provider.id,
            model=settings.model,
            effort=settings.effort,
            name=live.unstored_name,
            ephemeral=live.rollout_path is None,
        )

    def settings(self, thread_id: str) -> ThreadSettings | None:
        """Return the settings of the next turn of a thread; None if it is not loaded."""
        live = self.conversations.find(thread_id)
        return None if live is None else live.session.facts.settings

    def _live_turn(self, live: LiveConversation) -> LiveTurn:
        return ConversationContext(self.context, live, self.api).followed_turn()


class FoundThread(Struct, frozen=True):
    id: ConversationId
    path: Path | None
    """Path of the stored thread; None if it is loaded, and not stored."""
    loaded: ThreadSummary | None


def thread_reader(context: ConnectionContext) -> ThreadReader:
    """Return the reader of a connection."""

    def make() -> ThreadReader:
        live = LoadedThreads(context, shared_threads.thread_api(context))
        return ThreadReader(context.config, live, context.stored)

    return context.own.get(ThreadReader, make)


class ThreadReader(Struct, frozen=True):
    """Reads threads for requests, whether they are loaded, stored or both."""

    config: UserSettings
    live: LoadedThreads
    storage: Lazy[StoredConversations]
    """Loaded with the first thread that is read: a new one reads none."""

    @property
    def stored(self) -> StoredConversations:
        return self.storage.get()

    async def find(self, thread_id: str) -> FoundThread:
        """Return the thread, stored or loaded. Raises RpcError if it is neither."""
        id = parse_thread_id(thread_id)
        loaded = self.live.summary(id)
        if loaded is not None and loaded.path is not None and os.path.exists(loaded.path):
            return FoundThread(id, loaded.path, loaded)
        if loaded is not None and loaded.ephemeral:
            return FoundThread(id, None, loaded)
        try:
            return FoundThread(id, await self.stored.find(id), loaded)
        except RolloutNotFound:
            if loaded is None:
                raise invalid_request(f"thread not loaded: {id}", "thread_not_found") from None
            return FoundThread(id, None, loaded)

    async def read(self, thread: FoundThread, ask: Callable[[TurnHistory], Result]) -> Result:
        """Return the result of `ask` for the thread's turns, called in a worker thread. A thread that is moved
        meanwhile, for example into the archive, is read in its new place. Raises RpcError if it is deleted.
        """

        def ask_what_is_stored(history: TurnHistory) -> Result:
            if thread.path is not None and not history.is_stored:
                raise RolloutUnreadable("the file is not there any more")
            return ask(history)

        running, is_open = self.live.running(thread.id), thread.loaded is not None
        try:
            return await self.stored.turns(
                thread.path, thread.id, ask_what_is_stored, running, is_open=is_open
            )
        except RolloutUnreadable:
            if not await self._was_moved(thread):
                raise
        return await self.read(await self.find(thread.id), ask)

    async def whole(self, live: LiveConversation) -> WholeHistory | None:
        """Read a thread that was just loaded; None if it is not stored, or cannot be read at the moment. Raises
        RolloutUnreadable.
        """
        if live.rollout_path is None:
            return None
        try:
            return await self.stored.turns(
                live.rollout_path, live.id, lambda history: history.whole(), is_open=True
            )
        except RolloutUnreadable:
            if await self.stored.is_file(live.rollout_path):
                raise
            return None

    def new(self, live: LiveConversation) -> Thread:
        """Show a thread that has just begun. Its file is not read."""
        summary = self.live.summary(live.id)
        assert summary is not None
        return self.view(summary)

    async def shown(self, thread: FoundThread, turns: tuple[Turn, ...] = ()) -> Thread:
        summary = await self.summary(thread)
        return self.view(summary, turns)

    def view(self, summary: ThreadSummary, turns: tuple[Turn, ...] = ()) -> Thread:
        """Show a thread with its present status; one that is loaded also with the place where it works."""
        status = thread_status(self.live.status(summary.id))
        return thread_view(summary, status, turns, self.live.settings(summary.id))

    async def summary(self, thread: FoundThread) -> ThreadSummary:
        """Return a summary of the stored thread; that of a loaded thread has its current model and directory."""
        loaded = thread.loaded
        if thread.path is None:
            assert loaded is not None
            return loaded
        # The stored provider of a loaded thread is not shown, so the settings need not be read again.
        provider = self.config.load().provider.id if loaded is None else loaded.provider
        try:
            stored = await self.stored.summary(thread.path, provider)
        except RolloutUnreadable:
            if await self._was_moved(thread):
                return await self.summary(await self.find(thread.id))
            if loaded is None:
                raise
            return loaded  # its file is being written for the first time
        if loaded is None:
            return stored
        return replace(
            stored, provider=loaded.provider, model=loaded.model, effort=loaded.effort, cwd=loaded.cwd
        )

    async def _was_moved(self, thread: FoundThread) -> bool:
        return thread.path is not None and not await self.stored.is_file(thread.path)
