"""A server that others wrote, as users have it: started by its command, over stdio."""

import os
import sys

import pytest

from app_server.core.config.types import McpServerConfig, McpStdioTransport
from tests.unit.mcp.conftest import Rig


async def test_the_time_server_tells_the_time(rig: Rig) -> None:
    pytest.importorskip("mcp_server_time", reason="mcp-server-time is not installed")
    transport = McpStdioTransport(
        command=sys.executable,
        args=("-m", "mcp_server_time", "--local-timezone", "UTC"),
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    async with rig.opened(McpServerConfig(name="time", transport=transport, startup_timeout_sec=25.0)) as mcp:
        assert mcp.failures() == ()
        assert set(mcp.tools()) == {"mcp__time__get_current_time", "mcp__time__convert_time"}
        outcome = await mcp.call("mcp__time__get_current_time", {"timezone": "Europe/Warsaw"})
        assert not outcome.is_error
        assert "Europe/Warsaw" in outcome.payload().content
        wrong = await mcp.call("mcp__time__get_current_time", {"timezone": "Nowhere/Land"})
        assert wrong.is_error
