"""Answers `thread/list` requests right after `initialize`, before the engine is loaded. Fast to import.

Only the forms in which names give the order, with a simple configuration. Anything else, including invalid requests,
waits for the full server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core.rollout.thread_listing import ThreadLists, TooManyPassedBy
from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.core.rollout.thread_query import InvalidListCursor, ListRequest, ThreadFilter
from app_server.core.rollout.thread_summary import ThreadSummary
from app_server.startup.early_answers import EarlyAnswer, early_result
from app_server.startup.early_list import plain_provider
from app_server.startup.early_thread_shape import early_thread
from protocol.jsonrpc import Request
from protocol.names import THREAD_LIST

if TYPE_CHECKING:
    from protocol.base import Json

MAX_LIMIT = 1 << 31
INTERACTIVE = frozenset({"cli", "vscode"})
PARAMETERS = {"cursor", "limit", "sortKey", "sortDirection", "modelProviders", "archived"}


class EarlyThreads:
    """Call it only without overrides on the command line."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lists = ThreadLists(home, ThreadNotes(home, time.time), time.time)

    def answer(self, request: Request) -> EarlyAnswer | None:
        """The response, or None to leave it to the full server."""
        params = {} if request.params is None else request.params
        if request.method != THREAD_LIST or not isinstance(params, dict) or not _is_plain(params):
            return None
        provider = plain_provider(self._home)
        if provider is None:
            return None
        providers = params.get("modelProviders")
        wanted = ListRequest(
            filter=ThreadFilter(
                sources=INTERACTIVE,
                default_provider=provider,
                providers=frozenset((provider,) if providers is None else providers) or None,
            ),
            archived=bool(params.get("archived")),
            newest_first=params.get("sortDirection") != "asc",
            limit=params.get("limit"),
            cursor=params.get("cursor"),
        )
        try:
            page = self._lists.page_by_names(wanted)
        except (TooManyPassedBy, InvalidListCursor):
            return None
        result = {
            "data": [_to_wire(each) for each in page.threads],
            "nextCursor": page.next_cursor,
            "backwardsCursor": page.backwards_cursor,
        }
        return early_result(request, result)


def _is_plain(params: Mapping[str, Json]) -> bool:
    limit, cursor, providers = (params.get(key) for key in ("limit", "cursor", "modelProviders"))
    return (
        params.keys() <= PARAMETERS
        and (limit is None or (type(limit) is int and 0 <= limit < MAX_LIMIT))
        and (cursor is None or isinstance(cursor, str))
        and params.get("sortKey") in (None, "created_at")
        and params.get("sortDirection") in (None, "asc", "desc")
        and (params.get("archived") is None or isinstance(params["archived"], bool))
        and (
            providers is None
            or (isinstance(providers, list) and all(isinstance(each, str) for each in providers))
        )
    )


def _to_wire(thread: ThreadSummary) -> dict[str, Json]:
    """As the thread API shows one that is not loaded."""
    return early_thread(thread.id, thread.updated_at, thread.origin.git_info, shown_summary(thread))


def shown_summary(thread: ThreadSummary) -> dict[str, Json]:
    """The fields of one that is not loaded, by their names on the wire."""
    origin, model = thread.origin, thread.model
    return {
        "forkedFromId": origin.forked_from,
        "preview": thread.preview,
        "modelProvider": model.provider,
        "model": model.name,
        "reasoningEffort": model.effort,
        "createdAt": thread.created_at,
        "status": {"type": "notLoaded"},
        "path": str(thread.path),
        "cwd": origin.cwd,
        "cliVersion": origin.cli_version,
        "originator": origin.originator,
        "source": origin.source,
        "name": thread.name,
    }
