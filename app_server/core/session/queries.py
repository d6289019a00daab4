"""Operations that only ask for something: the message history, MCP tools, custom prompts. Each answers with one
event under the operation's id.
"""

from __future__ import annotations

from typing import assert_never

from app_server.core.custom_prompts import FOLDER, discover_prompts
from app_server.core.errors import ConversationError
from app_server.core.session.services import Services
from app_server.core.threads import run_in_thread
from protocol.events.notices import (
    GetHistoryEntryResponseEvent,
    HistoryEntry,
    ListCustomPromptsResponseEvent,
    WarningEvent,
)
from protocol.events.tools import McpListToolsResponseEvent
from protocol.ops import AddToHistoryOp, GetHistoryEntryRequestOp, ListCustomPromptsOp, ListMcpToolsOp

Lookup = AddToHistoryOp | GetHistoryEntryRequestOp | ListMcpToolsOp | ListCustomPromptsOp


async def answer(services: Services, id: str, op: Lookup) -> None:
    match op:
        case AddToHistoryOp():
            await _add(services, id, op.text)
        case GetHistoryEntryRequestOp():
            await _entry(services, id, op)
        case ListCustomPromptsOp():
            prompts = await run_in_thread(discover_prompts, services.conversation.config.home / FOLDER)
            services.outbox.emit(id, ListCustomPromptsResponseEvent(custom_prompts=tuple(prompts)))
        case ListMcpToolsOp():
            services.outbox.emit(id, await _mcp_tools(services))
        case _:
            assert_never(op)


async def _add(services: Services, id: str, text: str) -> None:
    entry = HistoryEntry(conversation_id=services.conversation.id, ts=services.sources.seconds(), text=text)
    try:
        await services.messages.append(entry)
    except (OSError, ConversationError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        services.outbox.emit(id, WarningEvent(message=f"The message history could not be written ({why})."))


async def _entry(services: Services, id: str, op: GetHistoryEntryRequestOp) -> None:
    found = await services.messages.lookup(op.log_id, op.offset)
    services.outbox.emit(id, GetHistoryEntryResponseEvent(offset=op.offset, log_id=op.log_id, entry=found))


async def _mcp_tools(services: Services) -> McpListToolsResponseEvent:
    return await services.mcp.snapshot()
