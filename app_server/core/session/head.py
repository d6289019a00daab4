"""The beginning that the requests of a conversation have in common: instructions and tools. Pure.

It is made with the first request to a model and stays until a compaction: providers have it cached, and some refuse the
model's thoughts once it has changed. What the model is told later is appended to the history; a tool that there is only
later is appended to the tools.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.core.context.sizes import PromptSize
from app_server.core.tools.contract import Tool


class ConversationHead(Struct):
    """Instructions and tools for one model."""

    size: PromptSize
    instructions: str
    tools: tuple[Tool, ...] = ()
    """Tools of the last request, in its order; empty before the first one."""
