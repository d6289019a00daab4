"""Removes the developer messages in which codex describes to its model what only codex has: its tools, sub-agents,
skills, modes and permissions.

These messages stand before the user's first message, and after a compaction in the middle of a history. A conversation
that is resumed here has none of these features; this server describes its own to the model. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from app_server_protocol.responses import InputText, MessageItem, ResponseItem
from app_server_protocol.rollout import (
    CODEX_MODE_HEAD,
    CompactedItem,
    SessionMetaLine,
    is_injected,
)
from app_server_protocol.values import replace

HEADS: Final = (
    *("<permissions instructions>", "<skills_instructions>", "<apps_instructions>", "<tools>"),
    *(CODEX_MODE_HEAD, "<multi_agent_role>", "<multi_agent_mode>"),
)
"""Beginnings of the texts of such messages."""

Line = ResponseItem | CompactedItem


def without_openings(lines: Iterable[Line], meta: SessionMetaLine) -> Iterator[Line]:
    """Yield a stored history without these messages. In a file that does not state its instructions, as files of older
    programs and of this server do not, only lines before the user's first message are filtered.
    """
    begins, base = True, meta.base_text
    for line in lines:
        if isinstance(line, CompactedItem):
            yield _compacted(line, meta)
            continue
        if begins or base is not None:
            kept = _kept(line, base)
            if kept is not None:
                yield kept
        else:
            yield line
        begins = begins and not _is_of_user(line)


def _compacted(line: CompactedItem, meta: SessionMetaLine) -> CompactedItem:
    if line.replacement_history is None:
        return line
    kept = without_openings(line.replacement_history, meta)
    items = tuple(item for item in kept if not isinstance(item, CompactedItem))
    return line if items == line.replacement_history else replace(line, replacement_history=items)


def _kept(item: ResponseItem, base: str | None) -> ResponseItem | None:
    """Return an item with the parts that stay; None if none stays. The same message may also contain developer
    instructions of the user.
    """
    if not isinstance(item, MessageItem) or item.role != "developer":
        return item
    parts = tuple(
        part
        for part in item.content
        if not (isinstance(part, InputText) and (part.text == base or part.text.startswith(HEADS)))
    )
    if len(parts) == len(item.content):
        return item
    return item.model_copy(update={"content": parts}) if parts else None


def _is_of_user(item: ResponseItem) -> bool:
    if not isinstance(item, MessageItem) or item.role != "user":
        return False
    texts = [part.text for part in item.content if isinstance(part, InputText)]
    return not texts or not all(map(is_injected, texts))
