"""The servers of a conversation: their resources, and restarts."""

import json

import anyio
import pytest

from app_server.engine.mcp.mcp_errors import McpFailure
from app_server.engine.mcp.results import RESOURCES, TEMPLATES
from app_server.engine.mcp.tool_catalog import ConnectionState
from app_server_protocol.engine.events import McpServerState
from app_server_protocol.engine.legacy import legacy_event
from app_server_protocol.mcp import McpAuthStatus
from tests.engine.mcp.conftest import Rig, fake, http
from tests.support.waiting import until

NOTE = {"server": "fake", "mimeType": "text/plain", "name": "note", "uri": "note://1"}


async def test_one_page_of_one_server(rig: Rig) -> None:
    async with rig.fake("normal") as mcp:
        first = await mcp.requests.list_entries(RESOURCES, " fake ", "")
        assert first == json.dumps(
            {"server": "fake", "resources": [NOTE], "nextCursor": "two"}, separators=(",", ":")
        )
        second = json.loads(await mcp.requests.list_entries(RESOURCES, "fake", "two"))
        assert second == {"server": "fake", "resources": [NOTE | {"uri": "note://2"}]}


async def test_all_pages_of_all_servers(rig: Rig) -> None:
    async with rig.opened(fake("normal", rig.log), fake("crash-start", rig.log, name="dead")) as mcp:
        assert json.loads(await mcp.requests.list_entries(RESOURCES)) == {
            "resources": [NOTE, NOTE | {"uri": "note://2"}]
        }
        assert json.loads(await mcp.requests.list_entries(TEMPLATES, "  ")) == {
            "resourceTemplates": [{"server": "fake", "name": "by number", "uriTemplate": "note://{n}"}]
        }


async def test_a_resource_is_read(rig: Rig) -> None:
    async with rig.fake("normal") as mcp:
        output = await mcp.requests.read_resource("fake", "note://1")
        assert output == (
            '{"server":"fake","uri":"note://1","contents":'
            '[{"mimeType":"text/plain","text":"a note","uri":"note://1"}]}'
        )


async def test_an_unavailable_resource_is_reported_to_the_model(rig: Rig) -> None:
    async with rig.opened(fake("normal", rig.log), fake("crash-start", rig.log, name="dead")) as mcp:
        with pytest.raises(McpFailure) as caught:
            await mcp.requests.read_resource("fake", "err://x")
        assert str(caught.value) == (
            "resources/read failed: resources/read failed for `fake` (err://x): "
            "resources/read failed: Mcp error: -32002: no such"
        )
        for name in ("absent", "dead"):
            with pytest.raises(McpFailure) as caught:
                await mcp.requests.list_entries(TEMPLATES, name)
            assert str(caught.value) == f"resources/templates/list failed: unknown MCP server '{name}'"
        with pytest.raises(McpFailure, match="cursor can only be used when a server is specified"):
            await mcp.requests.list_entries(RESOURCES, None, "x")


async def test_a_client_that_asks_is_shown_everything(rig: Rig) -> None:
    web = http("http://127.0.0.1:9/mcp", enabled=False, bearer_token_env_var="TOKEN")
    async with rig.opened(fake("normal", rig.log), web) as mcp:
        snapshot = legacy_event(await mcp.requests.snapshot()).to_value()
    assert snapshot["tools"]["mcp__fake__echo"]["inputSchema"]["properties"] == {"text": {"type": "string"}}
    assert [one["uri"] for one in snapshot["resources"]["fake"]] == ["note://1", "note://2"]
    assert snapshot["resource_templates"]["fake"][0]["uriTemplate"] == "note://{n}"
    assert snapshot["auth_statuses"] == {
        "fake": McpAuthStatus.UNSUPPORTED,
        "web": McpAuthStatus.BEARER_TOKEN,
    }


async def test_a_server_that_has_not_started_is_told_of_as_cancelled(rig: Rig) -> None:
    async with rig.opened() as manager:
        manager.reload({"slow": fake("silent", rig.log, name="slow", startup_timeout_sec=30.0)})
        await until(lambda: rig.states == [("slow", McpServerState.STARTING)])
        manager.reload({})
        assert rig.states == [("slow", McpServerState.STARTING), ("slow", McpServerState.CANCELLED)]
        assert not manager.configured


async def test_a_call_that_runs_fails_when_its_server_is_replaced(rig: Rig) -> None:
    failures: list[str] = []

    async with rig.fake("hang-call") as manager:

        async def call() -> None:
            try:
                await manager.requests.call_directly("fake", "echo", {}, None)
            except McpFailure as failure:
                failures.append(str(failure))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await until(lambda: bool(rig.received("tools/call")))
            manager.reload({})
    assert failures == ["tool call failed for `fake/echo`: tools/call failed: Transport closed"]


async def test_what_a_client_sends_along_reaches_the_server(rig: Rig) -> None:
    async with rig.fake("normal") as manager:
        await manager.requests.call_directly("fake", "echo", {"text": "x"}, {"trace": "t"})
    (sent,) = rig.received("tools/call")
    assert sent["params"] == {"name": "echo", "arguments": {"text": "x"}, "_meta": {"trace": "t"}}


async def test_a_server_that_does_not_list_its_tools_is_shown_with_the_reason(rig: Rig) -> None:
    async with rig.fake("hang-list", startup_timeout_sec=1.0) as manager:
        (status,) = await manager.requests.statuses(["fake"], with_resources=True)
        assert (status.state, status.tools) == (ConnectionState.FAILED, ())
        assert "timed out after 1 seconds" in (status.error or "")
