"""Threads and their turns as they are read: stored, and where a thread is open, as it is now."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from app_server.apis.services import ConfigSource
from app_server.apis.v2 import spelling
from app_server.apis.v2.outbound import ThreadAdapter
from app_server.apis.v2.turns import shown_turn
from app_server.conversations.adapter import AdapterFactory
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager
from app_server.conversations.status import Activity, ConversationStatus
from app_server.core.errors import RolloutNotFound
from app_server.core.rollout.head import ConversationSummary, read_summary
from app_server.core.rollout.listing import find_rollout
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.core.rollout.turn_pages import open_history
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import invalid_request
from protocol.engine.turns import TurnRecord
from protocol.ids import ConversationId
from protocol.records import dataclass
from protocol.v2.thread import GitInfo, SessionOriginWord, SessionSource, Thread
from protocol.v2.turn import Turn, TurnItemsView

NOT_LOADED = ConversationStatus(Activity.NOT_LOADED)


@dataclass(frozen=True, slots=True)
class ThreadReader:
    config: ConfigSource
    conversations: ConversationManager
    make_adapter: AdapterFactory
    indexes: TurnIndexes

    async def find(self, thread_id: str) -> Path:
        """Where the thread is stored. Raises RpcError with the text that clients match."""
        try:
            return await run_in_thread(find_rollout, self.config.home, ConversationId(thread_id))
        except RolloutNotFound:
            text = f"no rollout found for thread id {thread_id}"
            raise invalid_request(text, "rollout_not_found", "threadId") from None

    async def thread(self, thread_id: str, *, live: LiveConversation | None = None) -> Thread:
        """Without its turns. Raises RpcError where it is neither open nor stored."""
        path = live.rollout_path if live is not None else await self.find(thread_id)
        provider = self.config.load().model_provider_id

        def read() -> tuple[ConversationSummary, float]:
            return read_summary(path, provider), path.stat().st_mtime

        summary, changed = await run_in_thread(read)
        return _shown(thread_id, path, summary, changed, live)

    async def all_turns(
        self, thread_id: str, path: Path, view: TurnItemsView, *, live: LiveConversation | None = None
    ) -> tuple[Turn, ...]:
        """Oldest first; the turn that runs is the last one."""
        running = self.running(live)

        def read() -> tuple[TurnRecord, ...]:
            with open_history(path, thread_id, self.indexes, running) as history:
                return history.all_turns()

        records = await run_in_thread(read)
        return tuple(shown_turn(record, view) for record in records)

    def running(self, live: LiveConversation | None) -> TurnRecord | None:
        if live is None:
            return None
        adapter = live.adapter(self.make_adapter)
        assert isinstance(adapter, ThreadAdapter)
        return adapter.running


def _shown(
    thread_id: str,
    path: Path,
    summary: ConversationSummary,
    changed: float,
    live: LiveConversation | None,
) -> Thread:
    git = summary.git_info
    created = _seconds(summary.timestamp) or int(changed)
    settings = live.session.settings if live is not None else None
    return Thread(
        id=thread_id,
        session_id=thread_id,
        preview=summary.preview,
        ephemeral=False,
        project_id=None,
        model_provider=summary.model_provider,
        model=settings.model if settings is not None else None,
        reasoning_effort=spelling.shown_effort(settings.effort) if settings is not None else None,
        created_at=created,
        updated_at=max(int(changed), created),
        recency_at=max(int(changed), created),
        status=spelling.thread_status(live.status if live is not None else NOT_LOADED),
        path=str(path),
        cwd=settings.cwd if settings is not None else summary.cwd,
        cli_version=summary.cli_version,
        source=_source(summary.source),
        git_info=git and GitInfo(sha=git.commit_hash, branch=git.branch, origin_url=git.repository_url),
        turns=(),
    )


def _source(source: object) -> SessionSource:
    if isinstance(source, str):
        word = "appServer" if source == "mcp" else source
        try:
            return SessionOriginWord(word)
        except ValueError:
            return SessionOriginWord.UNKNOWN
    return SessionOriginWord.UNKNOWN


def _seconds(timestamp: str | None) -> int | None:
    try:
        return None if timestamp is None else int(datetime.fromisoformat(timestamp).timestamp())
    except ValueError:
        return None
