"""The calls of MCP tools that need an approval."""

import pytest

from app_server.engine.config.mcp_server_settings import McpApproval, McpServerConfig, McpStdioTransport
from app_server.engine.mcp.server_consent import approvals_last, is_silent, needs_approval
from app_server.engine.mcp.tool_catalog import McpTool, model_tools, server_tools
from app_server_protocol.encoding import Json

CAREFUL = {
    "none": None,
    "empty": {},
    "only a title": {"title": "T", "idempotentHint": True},
    "no reader": {"readOnlyHint": False},
    "destructive": {"destructiveHint": True},
    "not destructive, perhaps open": {"destructiveHint": False},
    "closed world, perhaps destructive": {"openWorldHint": False},
    "not destructive, open": {"destructiveHint": False, "openWorldHint": True},
    "no hints at all": {"readOnlyHint": 7.5},
}
HARMLESS = {
    "adds to a closed world": {"destructiveHint": False, "openWorldHint": False},
    "all false": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
}
READERS = {
    "reader": {"readOnlyHint": True},
    "reader of the open world": {"readOnlyHint": True, "openWorldHint": True},
    "reader that says it destroys": {"readOnlyHint": True, "destructiveHint": True},
}
ALL = {**CAREFUL, **HARMLESS, **READERS}

ASKED = {
    McpApproval.AUTO: CAREFUL.keys(),
    McpApproval.WRITES: CAREFUL.keys() | HARMLESS.keys(),
    McpApproval.PROMPT: ALL.keys(),
    McpApproval.APPROVE: set[str](),
}


def server(approval: McpApproval, **of_tools: McpApproval) -> McpServerConfig:
    transport = McpStdioTransport(command="x")
    return McpServerConfig(name="s", transport=transport, approval=approval, tool_approvals=of_tools)


def tool(annotations: Json) -> McpTool:
    raw: dict[str, Json] = {"name": "t", "inputSchema": {"type": "object"}}
    if annotations is not None:
        raw["annotations"] = annotations
    kept, _ = server_tools(server(McpApproval.AUTO), [raw])
    (found,) = model_tools(kept, ())[0].values()
    return found


@pytest.mark.parametrize("mode", ASKED)
@pytest.mark.parametrize("hints", ALL)
def test_the_mode_and_the_hints_of_the_tool_decide(mode: McpApproval, hints: str) -> None:
    assert needs_approval(server(mode), tool(ALL[hints])) is (hints in ASKED[mode])


def test_the_mode_of_a_tool_goes_before_that_of_its_server() -> None:
    config = server(McpApproval.PROMPT, t=McpApproval.APPROVE)
    assert not needs_approval(config, tool(None))
    assert needs_approval(server(McpApproval.APPROVE, t=McpApproval.PROMPT), tool(READERS["reader"]))


def test_approvals_last_where_the_hints_decide() -> None:
    for mode in McpApproval:
        assert approvals_last(server(mode), tool(None)) is (mode is McpApproval.AUTO)
    assert approvals_last(server(McpApproval.PROMPT, t=McpApproval.AUTO), tool(None))
    assert not approvals_last(server(McpApproval.AUTO, t=McpApproval.PROMPT), tool(None))


@pytest.mark.parametrize("hints", ALL)
def test_a_tool_is_silent_only_without_hints_and_without_a_mode_of_its_own(hints: str) -> None:
    silent = hints in ("none", "empty", "only a title", "no hints at all")
    assert is_silent(server(McpApproval.AUTO), tool(ALL[hints])) is silent
    assert not is_silent(server(McpApproval.PROMPT), tool(ALL[hints]))
    assert not is_silent(server(McpApproval.AUTO, t=McpApproval.WRITES), tool(ALL[hints]))
