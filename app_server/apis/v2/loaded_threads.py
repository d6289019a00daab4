"""The threads that this server has loaded, as requests that read threads see them."""

from __future__ import annotations

from app_server import STORED_VERSION
from app_server.apis.v2.outbound import ThreadAdapter
from app_server.conversations.adapter import AdapterFactory
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager
from app_server.conversations.status import Activity, ConversationStatus
from app_server.core.rollout.thread_summary import ModelInUse, ThreadOrigin, ThreadSummary
from app_server.identity import UserAgent
from protocol.engine.turns import TurnRecord
from protocol.origins import SessionOrigin
from protocol.records import dataclass
from protocol.v2.turn import Turn

NOT_LOADED = ConversationStatus(Activity.NOT_LOADED)


@dataclass(frozen=True, slots=True)
class LoadedThreads:
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
