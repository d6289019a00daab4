"""Whether a call of the model needs the user's consent, by the settings of its server, and asking for it."""

from __future__ import annotations

from app_server.core.config.types import McpApproval, McpServerConfig
from app_server.core.mcp.interfaces import Elicit, ElicitationRequest
from app_server.core.mcp.offer import McpTool
from protocol.base import Json

APPROVAL_KIND = "mcp_tool_call"
"""By which clients distinguish this question from those of the server itself."""


def needs_approval(config: McpServerConfig, tool: McpTool) -> bool:
    """A tool is taken to write unless the server says that it only reads."""
    match config.tool_approvals.get(tool.tool, config.approval):
        case McpApproval.PROMPT:
            return True
        case McpApproval.WRITES:
            annotations = tool.definition.annotations
            return annotations is None or annotations.read_only_hint is not True
        case McpApproval.AUTO | McpApproval.APPROVE:
            return False


async def is_approved(elicit: Elicit | None, tool: McpTool, arguments: Json) -> bool:
    """Nothing but a plain yes approves; where nobody can be asked, nobody does."""
    if elicit is None:
        return False
    meta = {"codex_approval_kind": APPROVAL_KIND, "tool_params": {} if arguments is None else arguments}
    message = f"Allow the MCP server `{tool.server}` to run the tool `{tool.tool}`?"
    answer = await elicit(ElicitationRequest(tool.server, message, meta=meta, is_approval=True))
    return answer.action == "accept"
