"""Pages of lists of stored threads, and of the turns and items of a thread: requests, cursors, limits, and the facts
that are shown of a thread. Pure.

A cursor names the entry where its page begins, so it stays valid while threads and turns are added or removed. In a
list of threads it also has the value by which the threads are sorted.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from app_server.engine.support.engine_errors import ConversationError
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EndedItem
from app_server_protocol.ids import SessionOrigin
from app_server_protocol.rollout import GitInfo

_CURSOR = r"(\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}(?:\.\d{3})?|\d{20})\|([0-9a-f-]{36})(\|=)?"

SUB_AGENT_KINDS = ("review", "compact", "thread_spawn")


class InvalidCursor(ConversationError):
    """The cursor was not made by this server, or the entry that it names is gone."""

    kind, field = "invalid_params", "cursor"

    def __init__(self, cursor: str) -> None:
        super().__init__(f"invalid cursor: {cursor[:100]}")


class ListKey(Struct, frozen=True, order=True):
    """Sort key of a thread in a list: threads sort by the value, then by the id."""

    value: str
    """Start of the thread (`RolloutName.started`), or its last change in nanoseconds since 1970, with leading zeros."""
    thread_id: str

    def cursor(self, *, included: bool = False) -> str:
        """Return a cursor for the page that begins after this entry. `included`: the page begins with the entry
        itself, in either direction.
        """
        return f"{self.value}|{self.thread_id}" + ("|=" if included else "")

    @classmethod
    def of_change(cls, changed_ns: int, thread_id: str) -> ListKey:
        return cls(f"{max(changed_ns, 0):020}", thread_id)


class ListStart(Struct, frozen=True):
    key: ListKey
    included: bool


def parse_list_cursor(cursor: str | None, *, by_change: bool) -> ListStart | None:
    """Return where a page begins; None if there is no cursor. Raises InvalidCursor."""
    if cursor is None:
        return None
    match = re.fullmatch(_CURSOR, cursor)
    if match is None or match[1].isdigit() is not by_change:
        raise InvalidCursor(cursor)
    return ListStart(ListKey(match[1], match[2]), included=match[3] is not None)


class ThreadFilter(Struct, frozen=True, kw_only=True):
    """Filter of a list of threads. A field that is None does not filter."""

    sources: frozenset[str]
    """Sources of threads, as `source_word` returns them."""
    default_provider: str
    providers: frozenset[str] | None = None
    cwds: frozenset[str] | None = None
    """Working directories, as normalised paths."""
    included: frozenset[str] | None = None
    """Ids of the only threads that are wanted."""
    excluded: frozenset[str] = frozenset()
    search: str | None = None
    """Text that the preview or the name contains. Case is ignored."""

    def is_found(self, text: str) -> bool:
        return self.search is not None and self.search.casefold() in text.casefold()


class ListRequest(Struct, frozen=True, kw_only=True):
    filter: ThreadFilter
    archived: bool = False
    by_change: bool = False
    newest_first: bool = True
    limit: int | None = None
    cursor: str | None = None

    @property
    def follows_names(self) -> bool:
        """Whether the names of the files give the order, and most threads match."""
        wanted = self.filter
        return not self.by_change and (wanted.search, wanted.cwds, wanted.included) == (None, None, None)


def source_word(source: SessionOrigin | dict[str, Json]) -> str:
    """Return the source of a thread, which says what started it, as one word."""
    match source:
        case SessionOrigin():
            return source.value
        case {"subagent": str(kind)} if kind in SUB_AGENT_KINDS:
            return f"subagent_{kind}"
        case {"subagent": {"thread_spawn": _}}:
            return "subagent_thread_spawn"
        case {"subagent": _}:
            return "subagent_other"
        case _:
            return SessionOrigin.UNKNOWN.value


class StoredHead(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Facts from a file about its conversation, in the order in which the index stores them."""

    id: str
    preview: str
    timestamp: str | None
    """Start of the conversation as the file states it; None if it is not stored."""
    provider: str
    """Id of the model provider; empty if the file names none."""
    cwd: str
    cli_version: str
    source: SessionOrigin | dict[str, Json]
    """Source of the conversation; for a sub-agent's conversation, the object of the protocol."""
    git: GitInfo | None
    """State of the Git repository."""
    originator: str
    """Name of the client that began the conversation."""
    forked_from: str | None
    """Id of the conversation that this one was forked from."""
    model: str | None = None
    """Model and effort of the last turn; None if they are not stored."""
    effort: str | None = None


class ThreadSummary(StoredHead, frozen=True, kw_only=True):
    """Facts that are shown of a thread beside its turns. Times are in whole seconds since 1970."""

    path: Path | None
    """Path of the rollout, which may not exist yet; None if the thread is not stored."""
    created_at: int
    updated_at: int
    name: str | None = None
    ephemeral: bool = False


DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 100

Row = TypeVar("Row")


def page_limit(wanted: int | None) -> int:
    return min(max(DEFAULT_LIMIT if wanted is None else wanted, 1), MAX_LIMIT)


class Anchor(Struct, frozen=True):
    """Entry where a page begins: at this turn or item, or after it."""

    id: str
    included: bool = False

    def cursor(self) -> str:
        text = json.dumps([self.id, self.included], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> Anchor:
    """Return where a page begins. Raises `InvalidCursor`."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        value = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidCursor(cursor) from None
    match value:
        case [str(id), bool(included)]:
            return Anchor(id, included)
        case _:
            raise InvalidCursor(cursor)


class PageRequest(Struct, frozen=True, kw_only=True):
    anchor: Anchor | None = None
    limit: int | None = None
    newest_first: bool = False


class Page(Struct, Generic[Row], frozen=True):
    rows: tuple[Row, ...] = ()
    next_cursor: str | None = None
    """Cursor of the following page; None if this is the last page."""
    backwards_cursor: str | None = None
    """Cursor of the page that begins with the first row, for the opposite direction."""


class ItemRow(Struct, frozen=True):
    turn_id: str
    ended: EndedItem


FoundThread = tuple[ThreadSummary, str]
"""A thread with a snippet of text around the first match."""


def with_rows(page: Page[Any], rows: tuple[Row, ...]) -> Page[Row]:
    return Page(rows, page.next_cursor, page.backwards_cursor)


def choose(ids: Sequence[str], request: PageRequest) -> Page[str]:
    """Return the ids of one page. `ids` are all ids, in the order of the conversation."""
    limit = page_limit(request.limit)
    order = ids[::-1] if request.newest_first else ids
    start = 0
    if request.anchor is not None:
        try:
            start = order.index(request.anchor.id) + (not request.anchor.included)
        except ValueError:
            raise InvalidCursor(request.anchor.cursor()) from None
    chosen = tuple(order[start : start + limit])
    more = start + limit < len(order)
    return Page(
        chosen,
        Anchor(chosen[-1]).cursor() if more else None,
        Anchor(chosen[0], included=True).cursor() if chosen else None,
    )


class TurnNotFound(ConversationError):
    """The thread has no such turn."""

    kind = "turn_not_found"

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn not found: {turn_id[:100]}")


class TurnCut(Struct, frozen=True):
    keeps: int | None
    """Number of lines before the cut; None if the cut is after the last line."""
    turns: int
    """Number of turns after the cut."""
