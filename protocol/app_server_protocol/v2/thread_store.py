"""Stored threads: lists, searches, pages of their turns and items; and changes: archive, delete, name, metadata,
reverting to an earlier turn.
"""

from typing import Final, Literal

from typing_extensions import TypeAliasType

from app_server_protocol.base import CancellableParams, WireModel
from app_server_protocol.method_table import ClientRequest, NoResult, ServerNotification
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import (
    AboutThread,
    ByPages,
    InThread,
    RequestId,
    SortDirection,
    experimental,
)
from app_server_protocol.v2.items import ThreadItem
from app_server_protocol.v2.thread import Thread
from app_server_protocol.v2.turn import Turn, TurnItemsView
from app_server_protocol.wire_fields import CleanText, Count, Flag

ThreadSortKey = TypeAliasType(
    "ThreadSortKey", Literal["created_at", "updated_at", "recency_at", "section_position"]
)


ThreadSourceKind = TypeAliasType(
    "ThreadSourceKind",
    Literal[
        "cli",
        "vscode",
        "exec",
        "appServer",
        "subAgent",
        "subAgentReview",
        "subAgentCompact",
        "subAgentThreadSpawn",
        "subAgentOther",
        "unknown",
    ],
)


ThreadListCwdFilter = TypeAliasType("ThreadListCwdFilter", str | tuple[str, ...])


class ThreadListParams(WireModel):
    """A page of stored threads. Without providers those of the configured one; with an empty list those of all.

    `includedThreadIds`, an empty list too, limits the page to these threads; `excludedThreadIds` leaves threads out.
    `parentThreadId` and `ancestorThreadId` ask for threads that another one began; there are none. `originators` is
    refused: threads are not found by the clients that began them.
    """

    ancestor_thread_id: str | None = experimental()
    parent_thread_id: str | None = experimental()
    cursor: str | None = None
    limit: Count | None = None
    included_thread_ids: tuple[str, ...] | None = None
    excluded_thread_ids: tuple[str, ...] | None = None
    sort_key: ThreadSortKey | None = None
    sort_direction: SortDirection | None = None
    model_providers: tuple[str, ...] | None = None
    source_kinds: tuple[ThreadSourceKind, ...] | None = None
    archived: Flag | None = None
    cwd: ThreadListCwdFilter | None = None
    use_state_db_only: Flag = False
    search_term: str | None = None
    originators: tuple[str, ...] | None = None


class ThreadListResponse(WireStruct):
    """A page; `backwardsCursor` leads the other way."""

    data: tuple[Thread, ...]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


ThreadSearchSortKey = TypeAliasType("ThreadSearchSortKey", Literal["created_at", "updated_at", "recency_at"])


class ThreadSearchParams(CancellableParams, ByPages):
    sort_key: ThreadSearchSortKey | None = None
    sort_direction: SortDirection | None = None
    source_kinds: tuple[ThreadSourceKind, ...] | None = None
    archived: Flag | None = None
    search_term: str


class ThreadSearchResult(WireStruct):
    thread: Thread
    snippet: str


class ThreadSearchResponse(WireStruct):
    data: tuple[ThreadSearchResult, ...]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadSearchPartialNotification(WireStruct):
    """Threads that a search has found while it goes on; its answer has them, too."""

    request_id: RequestId
    data: tuple[ThreadSearchResult, ...]


class ThreadSearchCancelParams(WireModel):
    """Which search to end, by the id of its request."""

    request_id: RequestId


class ThreadLoadedListResponse(WireStruct):
    data: tuple[str, ...]
    next_cursor: str | None = None


class ThreadReadParams(AboutThread):
    include_turns: Flag = False


class ShownThread(WireStruct):
    thread: Thread


class ThreadTurnsListParams(ByPages, AboutThread):
    """A page of turns, the newest first."""

    sort_direction: SortDirection | None = None
    items_view: TurnItemsView | None = None


class ThreadTurnsListResponse(WireStruct):
    data: tuple[Turn, ...]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ItemThreadItemsListAnchor(WireModel):
    type: Literal["item"] = "item"
    item_id: str


ThreadItemsListAnchor = TypeAliasType("ThreadItemsListAnchor", ItemThreadItemsListAnchor)


ThreadItemsListCursor = TypeAliasType("ThreadItemsListCursor", str | ThreadItemsListAnchor)


class ThreadItemsListParams(AboutThread):
    """A page of items, the oldest first, of the whole thread or of one turn."""

    turn_id: str | None = None
    cursor: ThreadItemsListCursor | None = None
    limit: Count | None = None
    sort_direction: SortDirection | None = None


class ThreadItemEntry(WireStruct):
    """An item and the turn that it belongs to."""

    turn_id: str
    item: ThreadItem
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class ThreadItemsListResponse(WireStruct):
    data: tuple[ThreadItemEntry, ...]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadSetNameParams(InThread):
    name: CleanText


class ThreadMetadataGitInfoUpdateParams(WireModel):
    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ThreadMetadataUpdateParams(InThread):
    git_info: ThreadMetadataGitInfoUpdateParams | None = None


class ThreadRevertParams(InThread):
    """Cuts a thread off before a turn. Files stay as they are."""

    before_turn_id: str


class ThreadRevertResponse(WireStruct):
    thread: Thread
    turns_backwards_cursor: str | None = None
    items_backwards_cursor: str | None = None


THREAD_READ: Final = ClientRequest(
    "thread/read", ThreadReadParams, ShownThread, "One thread, stored or open, without subscribing to it."
)
THREAD_TURNS_LIST: Final = ClientRequest(
    "thread/turns/list",
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
    "The turns of a thread, by pages.",
)
THREAD_ITEMS_LIST: Final = ClientRequest(
    "thread/items/list",
    ThreadItemsListParams,
    ThreadItemsListResponse,
    "The items of a thread or of one turn, by pages.",
)
THREAD_LIST: Final = ClientRequest(
    "thread/list",
    ThreadListParams,
    ThreadListResponse,
    "Stored threads, by pages.",
)
THREAD_SEARCH: Final = ClientRequest(
    "thread/search",
    ThreadSearchParams,
    ThreadSearchResponse,
    "Finds stored threads by what was said in them.",
    experimental=True,
)
THREAD_SEARCH_STREAM: Final = ClientRequest(
    "thread/search/stream",
    ThreadSearchParams,
    ThreadSearchResponse,
    "As `thread/search`; if it takes long, `thread/search/partial` tells what is found before the answer.",
    experimental=True,
)
THREAD_SEARCH_CANCEL: Final = ClientRequest(
    "thread/search/cancel",
    ThreadSearchCancelParams,
    NoResult,
    "Ends a search, which is answered with what it has found. Succeeds where there is none.",
    experimental=True,
)
THREAD_SEARCH_STREAM_CANCEL: Final = ClientRequest(
    "thread/search/stream/cancel",
    ThreadSearchCancelParams,
    NoResult,
    "The same for `thread/search/stream`.",
    experimental=True,
)
THREAD_SEARCH_PARTIAL: Final = ServerNotification(
    "thread/search/partial", ThreadSearchPartialNotification, "What a search has found while it goes on."
)
THREAD_LOADED_LIST: Final = ClientRequest(
    "thread/loaded/list",
    ByPages,
    ThreadLoadedListResponse,
    "The ids of the threads that are open in this server.",
)
THREAD_ARCHIVE: Final = ClientRequest(
    "thread/archive", InThread, NoResult, "Ends a thread if it is open and moves its file to the archive."
)
THREAD_UNARCHIVE: Final = ClientRequest(
    "thread/unarchive",
    InThread,
    ShownThread,
    "Brings the file of a thread back from the archive. The thread is not opened.",
)
THREAD_DELETE: Final = ClientRequest(
    "thread/delete", InThread, NoResult, "Ends a thread if it is open and deletes its file."
)
THREAD_NAME_SET: Final = ClientRequest(
    "thread/name/set", ThreadSetNameParams, NoResult, "Gives a thread a name."
)
THREAD_METADATA_UPDATE: Final = ClientRequest(
    "thread/metadata/update",
    ThreadMetadataUpdateParams,
    ShownThread,
    "Changes what is stored about a thread beside its turns.",
)
THREAD_REVERT: Final = ClientRequest(
    "thread/revert",
    ThreadRevertParams,
    ThreadRevertResponse,
    "Forgets a turn and all after it. Files stay as they are.",
)
