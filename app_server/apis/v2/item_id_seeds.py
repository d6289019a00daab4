"""Ids that the stored items of a thread have, for the adapter that is made when the thread is loaded."""

from __future__ import annotations

from pathlib import Path

from app_server.conversations.adapter import AdapterFactory
from app_server.conversations.live import LiveConversation
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.turn_fold import ItemIds
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.core.rollout.turn_pages import WholeHistory, open_history
from app_server.core.threads import run_in_thread
from protocol.engine.turns import TurnRecord


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
