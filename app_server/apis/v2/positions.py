"""Pages of short lists, which are made anew for each request: a cursor is the position of the first entry. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from app_server.rpc.errors import RpcError, invalid_request

Entry = TypeVar("Entry")


def page_by_position(
    entries: Sequence[Entry], cursor: str | None, limit: int | None
) -> tuple[tuple[Entry, ...], str | None]:
    """The entries of the page, and the cursor of the next one. Without a limit, all. Raises RpcError."""
    start = 0
    if cursor is not None:
        if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9 or int(cursor) > len(entries):
            raise invalid_cursor(cursor)
        start = int(cursor)
    end = len(entries) if limit is None else min(start + max(limit, 1), len(entries))
    return tuple(entries[start:end]), str(end) if end < len(entries) else None


def invalid_cursor(cursor: str) -> RpcError:
    return invalid_request(f"invalid cursor: {cursor[:100]}", "invalid_params", "cursor")
