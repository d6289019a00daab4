"""`fuzzyFileSearch`: files and folders by a rough spelling, once, or in a session whose query changes."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.apis.result import HandlerResult
from app_server.apis.v2.search_sessions import SearchSessions
from app_server.core.files.search import FileMatch, FileSearch
from app_server.rpc.errors import internal_error, invalid_request
from protocol.records import dataclass
from protocol.v2 import search as wire


@dataclass(frozen=True, slots=True)
class FileSearchContext:
    search: FileSearch
    sessions: SearchSessions


async def fuzzy_file_search(
    context: FileSearchContext, params: wire.FuzzyFileSearchParams
) -> wire.FuzzyFileSearchResponse:
    """A second search with the same token cancels the first, which then returns no files."""
    found = await context.search.search(
        params.query, params.roots, params.cancellation_token, names_count=True
    )
    return wire.FuzzyFileSearchResponse(files=shown_matches(found))


async def session_start(
    context: FileSearchContext, params: wire.FuzzyFileSearchSessionStartParams
) -> HandlerResult[wire.FuzzyFileSearchSessionStartResponse]:
    """The first notification has no query and no files."""
    id = params.session_id
    if not id:
        raise invalid_request("sessionId must not be empty", "invalid_params", "sessionId")
    if not params.roots:
        raise internal_error(
            "failed to start fuzzy file search session: at least one search directory is required", "no_roots"
        )
    context.sessions.start(id, params.roots)
    session = context.sessions.get(id)

    async def begin() -> None:
        context.sessions.look_for(id, session, "")

    return HandlerResult(wire.FuzzyFileSearchSessionStartResponse(), begin)


async def session_update(
    context: FileSearchContext, params: wire.FuzzyFileSearchSessionUpdateParams
) -> HandlerResult[wire.FuzzyFileSearchSessionUpdateResponse]:
    session = context.sessions.get(params.session_id)

    async def begin() -> None:
        context.sessions.look_for(params.session_id, session, params.query)

    return HandlerResult(wire.FuzzyFileSearchSessionUpdateResponse(), begin)


async def session_stop(
    context: FileSearchContext, params: wire.FuzzyFileSearchSessionStopParams
) -> wire.FuzzyFileSearchSessionStopResponse:
    """Also for a session that is not there."""
    context.sessions.stop(params.session_id)
    return wire.FuzzyFileSearchSessionStopResponse()


def shown_matches(found: Sequence[FileMatch]) -> tuple[wire.FuzzyFileSearchResult, ...]:
    kinds = wire.FuzzyFileSearchMatchType
    return tuple(
        wire.FuzzyFileSearchResult(
            root=match.root,
            path=match.path,
            match_type=kinds.DIRECTORY if match.is_folder else kinds.FILE,
            file_name=match.file_name,
            score=match.score,
            indices=match.indices,
        )
        for match in found
    )
