"""`web_search`: the provider runs it; the tool only enables it."""

from __future__ import annotations

from app_server.core.model.prompt import ToolSpec, WebSearchTool
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn


class ProviderWebSearch:
    name = "web_search"
    parallel = True

    def spec(self) -> ToolSpec:
        return WebSearchTool()

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        raise ToolFailure("web_search is run by the provider and cannot be called as a function")
