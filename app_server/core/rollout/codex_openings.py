"""Developer messages in which codex tells its model of what it alone has: its tools, sub-agents, skills, modes, rights.

They stand before the user's first words, and after a compaction in the middle of a history. A conversation that goes on
here has none of it; the model is told by this server what there is. Pure.
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
from app_server_protocol.structs import replace

HEADS: Final = (
    *("<permissions instructions>", "<skills_instructions>", "<apps_instructions>", "<tools>"),
    *(CODEX_MODE_HEAD, "<multi_agent_role>", "<multi_agent_mode>"),
)
"""Beginnings of such texts."""

Line = ResponseItem | CompactedItem


def without_openings(lines: Iterable[Line], meta: SessionMetaLine) -> Iterator[Line]:
    """Yield a stored history without these messages. In a file that says nothing of its instructions, as those of older
    programs and of this server, only what stands before the user's first words is looked at.
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
    """Return an item with the parts that stay; None if none does. Developer instructions of the user may be in the same
    message.
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
