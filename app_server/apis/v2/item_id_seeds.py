"""Ids that the stored items of a thread have, for the adapter that is made when the thread is loaded."""

from __future__ import annotations

from app_server.conversations.adapter import AdapterFactory
from app_server.conversations.live import LiveConversation
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.turn_fold import ItemIds
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.core.rollout.turn_pages import used_ids
from app_server.core.threads import run_in_thread


class ItemIdSeeds:
    """A provider may give an item an id that an item of an earlier session has."""

    def __init__(self, indexes: TurnIndexes) -> None:
        self._indexes = indexes
        self._found: dict[str, ItemIds] = {}

    async def follow(self, live: LiveConversation, make_adapter: AdapterFactory) -> None:
        """Follows a thread that was just loaded from a file."""
        if live.rollout_path is not None:
            try:
                ids = await run_in_thread(used_ids, live.rollout_path, live.id, self._indexes)
            except RolloutUnreadable:
                ids = ItemIds()  # it cannot be stored at the moment
            self._found[live.id] = ids
        live.adapter(make_adapter)

    def take(self, thread_id: str) -> ItemIds | None:
        return self._found.pop(thread_id, None)
