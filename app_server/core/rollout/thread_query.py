"""What a request wants of the stored threads: which, in which order, and from where on. Pure.

A cursor is the sort value and the id of an entry, so it stays valid when threads appear or go.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.core.rollout.head import StoredSummary
from protocol.ids import SessionOrigin
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

_CURSOR = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}|\d{20})\|([0-9a-f-]{36})(\|=)?")

SUB_AGENT_KINDS = ("review", "compact", "thread_spawn")


class InvalidListCursor(ValueError):
    """The cursor is none of this list."""


@dataclass(frozen=True, slots=True, order=True)
class ListKey:
    """Where an entry stands: entries sort by the value, then by the id."""

    value: str
    """The start as in the file's name, or the last change in nanoseconds, with leading zeros."""
    thread_id: str

    def cursor(self, *, included: bool = False) -> str:
        """The place behind the entry, or before it: from there the entry itself comes first, in either direction."""
        return f"{self.value}|{self.thread_id}" + ("|=" if included else "")

    @classmethod
    def of_change(cls, changed_ns: int, thread_id: str) -> ListKey:
        return cls(f"{max(changed_ns, 0):020}", thread_id)


class ListStart(Struct, frozen=True):
    key: ListKey
    included: bool


def parse_list_cursor(cursor: str | None, *, by_change: bool) -> ListStart | None:
    """Raises InvalidListCursor."""
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None or match[1].isdigit() is not by_change:
        raise InvalidListCursor(f"invalid cursor: {cursor[:100]}")
    return ListStart(ListKey(match[1], match[2]), included=match[3] is not None)


class ThreadFilter(Struct, frozen=True, kw_only=True):
    """None: no matter which."""

    sources: frozenset[str]
    """As `source_word` has them."""
    default_provider: str
    providers: frozenset[str] | None = None
    cwds: frozenset[str] | None = None
    """Normalised paths."""
    excluded: frozenset[str] = frozenset()
    search: str | None = None
    """Text that the preview or the name contains, in whatever case."""

    def matches(self, head: StoredSummary, name: str | None) -> bool:
        return (
            head.has_user_message
            and source_word(head.source) in self.sources
            and (self.providers is None or (head.model_provider or self.default_provider) in self.providers)
            and (self.cwds is None or os.path.normpath(head.cwd) in self.cwds)
            and (self.search is None or self.is_found(head.preview) or self.is_found(name or ""))
        )

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
        """Whether names give the order, and most threads are wanted."""
        return not self.by_change and self.filter.search is None and self.filter.cwds is None


def source_word(source: SessionOrigin | dict[str, Json]) -> str:
    """What began the thread, as one word."""
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
