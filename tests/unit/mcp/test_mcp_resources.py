"""The tools that list and read resources: what they take and what they answer."""

import json

import pytest

from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.resources import ListArguments, list_arguments, read_arguments
from protocol.mcp import McpAuthStatus
from tests.unit.mcp.conftest import Rig, fake, http

NOTE = {"server": "fake", "mimeType": "text/plain", "name": "note", "uri": "note://1"}


def test_blank_arguments_count_as_left_out() -> None:
    assert list_arguments("  ", "") == ListArguments()
    assert list_arguments(None, None).invoked_server == "codex"
    assert list_arguments(" s ", None).server == "s"


@pytest.mark.parametrize(
    ("server", "uri", "message"), [(" ", "x", "server must be provided"), ("s", "", "uri must be provided")]
)
def test_reading_needs_a_server_and_a_uri(server: str, uri: str, message: str) -> None:
    with pytest.raises(McpFailure, match=message):
        read_arguments(server, uri)


def test_an_event_names_the_server_as_the_model_wrote_it() -> None:
    arguments = read_arguments(" s ", " u ")
    assert (arguments.server, arguments.uri, arguments.invoked_server) == ("s", "u", " s ")


async def test_one_page_of_one_server(rig: Rig) -> None:
    async with rig.fake("normal") as mcp:
        first = await mcp.list_resources(ListArguments("fake"))
        assert first == json.dumps(
            {"server": "fake", "resources": [NOTE], "nextCursor": "two"}, separators=(",", ":")
        )
        second = json.loads(await mcp.list_resources(ListArguments("fake", "two")))
        assert second == {"server": "fake", "resources": [NOTE | {"uri": "note://2"}]}


async def test_all_pages_of_all_servers(rig: Rig) -> None:
    async with rig.opened(fake("normal", rig.log), fake("crash-start", rig.log, name="dead")) as mcp:
        assert json.loads(await mcp.list_resources(ListArguments())) == {
            "resources": [NOTE, NOTE | {"uri": "note://2"}]
        }
        assert json.loads(await mcp.list_templates(ListArguments())) == {
            "resourceTemplates": [{"server": "fake", "name": "by number", "uriTemplate": "note://{n}"}]
        }


async def test_a_resource_is_read(rig: Rig) -> None:
    async with rig.fake("normal") as mcp:
        output = await mcp.read_resource(read_arguments("fake", "note://1"))
        assert output == (
            '{"server":"fake","uri":"note://1","contents":'
            '[{"mimeType":"text/plain","text":"a note","uri":"note://1"}]}'
        )


async def test_an_unavailable_resource_is_reported_to_the_model(rig: Rig) -> None:
    async with rig.opened(fake("normal", rig.log), fake("crash-start", rig.log, name="dead")) as mcp:
        with pytest.raises(McpFailure) as caught:
            await mcp.read_resource(read_arguments("fake", "err://x"))
        assert str(caught.value) == (
            "resources/read failed: resources/read failed for `fake` (err://x): "
            "resources/read failed: Mcp error: -32002: no such"
        )
        for name in ("absent", "dead"):
            with pytest.raises(McpFailure) as caught:
                await mcp.list_templates(ListArguments(name))
            assert str(caught.value) == f"resources/templates/list failed: unknown MCP server '{name}'"
        with pytest.raises(McpFailure, match="cursor can only be used when a server is specified"):
            await mcp.list_resources(ListArguments(None, "x"))


async def test_a_client_that_asks_is_shown_everything(rig: Rig) -> None:
    web = http("http://127.0.0.1:9/mcp", enabled=False, bearer_token_env_var="TOKEN")
    async with rig.opened(fake("normal", rig.log), web) as mcp:
        snapshot = (await mcp.snapshot()).to_value()
    assert snapshot["tools"]["mcp__fake__echo"]["inputSchema"]["properties"] == {"text": {"type": "string"}}
    assert [one["uri"] for one in snapshot["resources"]["fake"]] == ["note://1", "note://2"]
    assert snapshot["resource_templates"]["fake"][0]["uriTemplate"] == "note://{n}"
    assert snapshot["auth_statuses"] == {
        "fake": McpAuthStatus.UNSUPPORTED,
        "web": McpAuthStatus.BEARER_TOKEN,
    }
