"""`thread/list`: stored threads by pages."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.apis.v2.handlers.reading import ReadingContext
from app_server.apis.v2.thread_view import thread_view
from app_server.core.rollout.head import StoredSummary
from app_server.core.rollout.thread_listing import (
    InvalidListCursor,
    ListRequest,
    ThreadFilter,
    ThreadPage,
    list_threads,
)
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import invalid_request
from protocol.base import Json
from protocol.origins import SessionOrigin
from protocol.v2.fields import SortDirection
from protocol.v2.thread_store import ThreadListParams, ThreadListResponse, ThreadSortKey, ThreadSourceKind

INTERACTIVE = (ThreadSourceKind.CLI, ThreadSourceKind.VSCODE)
"""What is listed where the request names no kinds."""

KINDS = {
    SessionOrigin.CLI: ThreadSourceKind.CLI,
    SessionOrigin.VSCODE: ThreadSourceKind.VSCODE,
    SessionOrigin.EXEC: ThreadSourceKind.EXEC,
    SessionOrigin.MCP: ThreadSourceKind.APP_SERVER,
    SessionOrigin.UNKNOWN: ThreadSourceKind.UNKNOWN,
}
SUB_AGENTS = {"review": ThreadSourceKind.SUB_AGENT_REVIEW, "compact": ThreadSourceKind.SUB_AGENT_COMPACT}


async def thread_list(context: ReadingContext, params: ThreadListParams) -> ThreadListResponse:
    provider = context.config.load().model_provider_id
    request = ListRequest(
        filter=ThreadFilter(
            wanted=lambda head: _is_wanted(head, params, provider),
            excluded=frozenset(each.lower() for each in params.excluded_thread_ids or ()),
            search=params.search_term or None,
        ),
        archived=bool(params.archived),
        by_change=params.sort_key in (ThreadSortKey.UPDATED_AT, ThreadSortKey.RECENCY_AT),
        newest_first=params.sort_direction is not SortDirection.ASC,
        limit=params.limit,
        cursor=params.cursor,
    )

    def read() -> ThreadPage:
        return list_threads(context.config.home, request, provider, context.name_of)

    try:
        page = await run_in_thread(read, abandon_on_cancel=True)
    except InvalidListCursor as error:
        raise invalid_request(str(error), "invalid_params", "cursor") from None
    return ThreadListResponse(
        data=tuple(
            thread_view(each, context.rendering.status(context.live.status(each.id))) for each in page.threads
        ),
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )


def _is_wanted(head: StoredSummary, params: ThreadListParams, provider: str) -> bool:
    providers = (provider,) if params.model_providers is None else params.model_providers
    cwds: Sequence[str] = (params.cwd,) if isinstance(params.cwd, str) else params.cwd or ()
    return (
        (not providers or head.model_provider in providers)
        and (not cwds or head.cwd in cwds)
        and any(kind in (params.source_kinds or INTERACTIVE) for kind in _kinds(head.source))
    )


def _kinds(source: SessionOrigin | dict[str, Json]) -> Sequence[ThreadSourceKind]:
    """A sub-agent's thread is of its own kind, and of the kind of all of them."""
    match source:
        case SessionOrigin():
            return (KINDS[source],)
        case {"subagent": str(word)}:
            return (ThreadSourceKind.SUB_AGENT, SUB_AGENTS.get(word, ThreadSourceKind.SUB_AGENT_OTHER))
        case {"subagent": {"thread_spawn": _}}:
            return (ThreadSourceKind.SUB_AGENT, ThreadSourceKind.SUB_AGENT_THREAD_SPAWN)
        case {"subagent": _}:
            return (ThreadSourceKind.SUB_AGENT, ThreadSourceKind.SUB_AGENT_OTHER)
        case _:
            return (ThreadSourceKind.UNKNOWN,)
