"""`session/list`: every stored session that is not archived, whoever began it."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from app_server.apis.acp.errors import invalid_params
from app_server.apis.acp.text import one_line
from app_server.core.rollout.thread_listing import ThreadLists
from app_server.core.rollout.thread_query import InvalidListCursor, ListRequest, ThreadFilter
from app_server.core.rollout.thread_summary import ThreadSummary
from app_server.core.threads import run_in_thread
from protocol.acp.session import ListSessionsRequest, ListSessionsResponse, SessionInfo
from protocol.origins import SessionOrigin
from protocol.records import dataclass

PAGE = 50
SOURCES = frozenset(SessionOrigin)
"""A part of another session, as the one of a sub-agent, is none of its own."""


@dataclass(frozen=True, slots=True)
class ListContext:
    lists: ThreadLists


async def list_sessions(context: ListContext, params: ListSessionsRequest) -> ListSessionsResponse:
    request = ListRequest(
        filter=ThreadFilter(
            sources=SOURCES,
            default_provider="",
            cwds=None if params.cwd is None else frozenset((os.path.normpath(params.cwd),)),
        ),
        by_change=True,
        limit=PAGE,
        cursor=params.cursor,
    )
    try:
        page = await run_in_thread(context.lists.page, request, abandon_on_cancel=True)
    except InvalidListCursor as error:
        raise invalid_params(str(error), "cursor") from None
    return ListSessionsResponse(
        sessions=tuple(_info(each) for each in page.threads), next_cursor=page.next_cursor
    )


def _info(summary: ThreadSummary) -> SessionInfo:
    changed = datetime.fromtimestamp(summary.updated_at, UTC)
    return SessionInfo(
        session_id=summary.id,
        cwd=summary.origin.cwd,
        title=one_line(summary.name or summary.preview) or None,
        updated_at=changed.isoformat().replace("+00:00", "Z"),
    )
