"""The threads that this server has loaded, as requests that read threads see them, and the ids that their stored
items have for the adapter that is made when a thread is loaded.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from app_server import STORED_VERSION
from app_server.apis.v2.outbound import ThreadAdapter
from app_server.conversations.adapter import Activity, AdapterFactory, ConversationStatus
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager
from app_server.core.rollout.disk import RolloutUnreadable
from app_server.core.rollout.thread_summary import ModelInUse, ThreadOrigin, ThreadSummary
from app_server.core.rollout.turn_fold import ItemIds
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.core.rollout.turn_pages import WholeHistory, open_history
from app_server.core.threads import run_in_thread
from app_server.identity import UserAgent
from protocol.engine.turns import TurnRecord
from protocol.ids import SessionOrigin
from protocol.v2.turn import Turn

NOT_LOADED = ConversationStatus(Activity.NOT_LOADED)


class LoadedThreads(Struct, frozen=True):
    conversations: ConversationManager
    make_adapter: AdapterFactory
    agent: UserAgent

    def loaded(self) -> list[str]:
        """In the order in which they were opened."""
        return [live.id for live in self.conversations.all()]

    def status(self, thread_id: str) -> ConversationStatus:
        live = self.conversations.find(thread_id)
        return NOT_LOADED if live is None else live.status

    def running(self, thread_id: str) -> TurnRecord | None:
        live = self.conversations.find(thread_id)
        return None if live is None else self.adapter(live).running

    def running_turn(self, thread_id: str) -> Turn | None:
        """The turn that runs, with the items that go on."""
        live = self.conversations.find(thread_id)
        return None if live is None else self.adapter(live).running_turn()

    def summary(self, thread_id: str) -> ThreadSummary | None:
        live = self.conversations.find(thread_id)
        if live is None:
            return None
        settings, opened_at = live.session.facts.settings, int(live.opened_at)
        return ThreadSummary(
            id=live.id,
            path=live.rollout_path,
            preview=live.session.facts.first_words if live.rollout_path is None else "",
            created_at=opened_at,
            updated_at=opened_at,
            origin=ThreadOrigin(
                cwd=settings.cwd,
                cli_version=STORED_VERSION,
                originator=self.agent.originator,
                source=SessionOrigin.VSCODE,
                forked_from=live.forked_from,
            ),
            model=ModelInUse(live.session.facts.config.provider.id, settings.model, settings.effort),
            name=live.unstored_name,
            ephemeral=live.rollout_path is None,
        )

    def adapter(self, live: LiveConversation) -> ThreadAdapter:
        adapter = live.adapter(self.make_adapter)
        assert isinstance(adapter, ThreadAdapter)
        return adapter


class ItemIdSeeds:
    """A provider may give an item an id that an item of an earlier session has."""

    def __init__(self, indexes: TurnIndexes) -> None:
        self._indexes = indexes
        self._found: dict[str, ItemIds] = {}

    async def follow(self, live: LiveConversation, make_adapter: AdapterFactory) -> tuple[TurnRecord, ...]:
        """Follows a thread that was just loaded from a file; gives its turns, which were read for it."""
        turns: tuple[TurnRecord, ...] = ()
        if live.rollout_path is not None:
            try:
                found = await run_in_thread(self._read, live.rollout_path, live.id)
                turns, self._found[live.id] = found.turns, found.ids
            except RolloutUnreadable:
                self._found[live.id] = ItemIds()  # it cannot be stored at the moment
        live.adapter(make_adapter)
        return turns

    def take(self, thread_id: str) -> ItemIds | None:
        return self._found.pop(thread_id, None)

    def _read(self, path: Path, thread_id: str) -> WholeHistory:
        with open_history(path, thread_id, self._indexes) as history:
            return history.whole()
