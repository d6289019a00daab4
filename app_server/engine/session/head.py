"""The common beginning of a conversation's requests: instructions and tools. Pure.

It is made at the first request to a model and stays until a compaction: providers cache it, and some refuse the model's
thoughts once it has changed. Later information for the model is appended to the history; a tool that is added later is
appended to the tools. A stored history may call tools of another time or program: one message informs the model that
these may be gone.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from msgspec import Struct

from app_server.engine.context.history import message_text
from app_server.engine.context.sizes import PromptSize
from app_server.engine.tools.tool_base import Tool
from app_server_protocol.responses import (
    CustomToolCall,
    FunctionCall,
    InputText,
    MessageItem,
    ResponseItem,
)

TOOLS_GONE: Final = "Tools named earlier may be gone; use only those that you are offered now."


class ConversationHead(Struct):
    """Instructions and tools for one model."""

    size: PromptSize
    instructions: str
    tools: tuple[Tool, ...] = ()
    """Tools of the last request, in its order; empty before the first one."""


def gone_tools(items: Sequence[ResponseItem], known: Container[str]) -> MessageItem | None:
    """Return the message about tools that a history calls and that are not `known` any more; None if there are no such
    tools, or if the history already has the message.
    """
    called = {item.name for item in items if isinstance(item, FunctionCall | CustomToolCall)}
    if all(name in known for name in called):
        return None
    notes = (item for item in items if isinstance(item, MessageItem) and item.role == "developer")
    if any(message_text(note) == TOOLS_GONE for note in notes):
        return None
    return MessageItem(role="developer", content=(InputText(text=TOOLS_GONE),))
