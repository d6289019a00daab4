"""What the thread API has since codex 0.171: fields, refusals, the default provider, the notice about `untrusted`."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from app_server import PROTOCOL_VERSION
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import calls, failure, reply, says
from tests.support.source_modules import ROOT
from tests.support.thread_client import ended, heard, join, notified, say, talk, turn
from tests.support.world import EXPERIMENTAL, MakeWorld

pytestmark = pytest.mark.scenario

SERVER = str(ROOT / "tests" / "support" / "mcp_server.py")
TABLES = f'[mcp_servers.files]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\n'


async def test_the_version_is_said_to_clients(world: MakeWorld) -> None:
    async with world(initialize=False) as w:
        answer = await w.client.call(
            "initialize", {"clientInfo": {"name": "my-editor", "version": "1.0"}, "capabilities": {}}
        )
        assert PROTOCOL_VERSION == "0.171.0"
        assert answer["userAgent"].startswith("my-editor/0.171.0 (")


@pytest.mark.parametrize("page", ["README.md", "docs/threads.md", "docs/protocol.md"])
def test_pages_show_the_version_that_is_spoken(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert f"my-editor/{PROTOCOL_VERSION} (" in text
    assert text.count("my-editor/") == text.count(f"my-editor/{PROTOCOL_VERSION} (")


async def test_a_loaded_thread_shows_where_it_works(world: MakeWorld) -> None:
    async with world(reply(says("hi")), capabilities=EXPERIMENTAL) as w:
        folder, other = str(w.workspace), str(w.root / "user")
        answer = await w.client.call(
            "thread/start", {"cwd": folder, "runtimeWorkspaceRoots": [folder, other]}
        )
        assert answer["disabledPluginIds"] == []
        assert answer["multiAgentMode"] == "explicitRequestOnly"
        shown = answer["thread"]
        place = {"environmentId": "local", "cwd": folder, "runtimeWorkspaceRoots": [folder, other]}
        assert shown["environments"] == [place]
        assert shown["canAcceptDirectInput"] is True
        nothing = ("section", "sectionEnteredAt", "attachedToThreadId", "extra")
        assert {shown[name] for name in nothing} == {None}
        await say(w.client, shown["id"])
        (listed,) = (await w.client.call("thread/list", {}))["data"]
        assert (listed["environments"], listed["canAcceptDirectInput"]) == ([place], True)
        forked = await w.client.call("thread/fork", {"threadId": shown["id"], "cwd": other})
        assert forked["thread"]["environments"][0]["cwd"] == other
        assert forked["multiAgentMode"] == "explicitRequestOnly"
    async with world() as w:
        stored = (await w.client.call("thread/read", {"threadId": shown["id"]}))["thread"]
        assert (stored["environments"], stored["canAcceptDirectInput"]) == (None, None)
        resumed = await join(w.client, shown["id"])
        assert resumed["disabledPluginIds"] == []
        assert resumed["thread"]["environments"][0]["cwd"] == folder


async def test_there_is_one_environment(world: MakeWorld) -> None:
    async with world(tables=TABLES) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        of_server = {"threadId": thread, "server": "files"}
        call = {**of_server, "tool": "echo", "arguments": {"text": "x"}}
        for here in (None, "local"):
            assert (await w.client.call("mcpServer/tool/call", {**call, "environmentId": here}))["content"]
            status = {"threadId": thread, "serverName": "files", "environmentId": here}
            (found,) = (await w.client.call("mcpServerStatus/list", status))["data"]
            assert (found["name"], found["environmentId"]) == ("files", None)
        status["environmentId"] = "cloud"
        assert await w.client.call("mcpServerStatus/list", status) == {"data": [], "nextCursor": None}
        for method, params, code, text in (
            ("mcpServer/tool/call", call, -32603, "unknown MCP server 'files (environment cloud)'"),
            (
                "mcpServer/resource/read",
                {**of_server, "uri": "a:b"},
                -32603,
                "unknown MCP server 'files (environment cloud)'",
            ),
            (
                "mcpServer/oauth/login",
                {"name": "files"},
                -32600,
                "No MCP server named 'files (environment cloud)' found.",
            ),
            ("mcpServerStatus/list", {}, -32600, "environmentId requires serverName and threadId"),
            (
                "mcpServerStatus/list",
                {"serverName": "files"},
                -32600,
                "environmentId requires serverName and threadId",
            ),
        ):
            for elsewhere in ("cloud", ""):
                error = (await w.client.ask(method, {**params, "environmentId": elsewhere}))["error"]
                assert (error["code"], error["message"]) == (code, text.replace("cloud", elsewhere))


async def test_calls_and_servers_name_no_other_environment(world: MakeWorld) -> None:
    replies = reply(calls("mcp__files__echo", {"text": "x"}, "m1")), reply(says("done"))
    async with world(*replies, tables=TABLES) as w:
        await talk(w.client)
        started = notified(w, "item/started")
        (call,) = (each["item"] for each in started if each["item"]["type"] == "mcpToolCall")
        assert call["environmentId"] is None
        states = notified(w, "mcpServer/startupStatus/updated")
        assert {each["environmentId"] for each in states} == {None}


async def test_the_default_provider_is_written(world: MakeWorld) -> None:
    tables = '[model_providers.other]\nname = "Other"\nbase_url = "http://127.0.0.1:9/v1"\n'
    async with world(tables=tables) as w:
        listed = await w.client.call("modelProvider/list", {})
        assert (listed["defaultProviderId"], listed["canChangeDefault"]) == ("scripted", True)
        error = (await w.client.ask("modelProvider/default/set", {"providerId": "x"}))["error"]
        assert (error["code"], error["message"]) == (-32600, "Model provider `x` is not configured.")
        assert error["data"]["config_write_error_code"] == "configValidationError"
        answer = await w.client.call("modelProvider/default/set", {"providerId": "other"})
        path = w.home / "config.toml"
        assert (answer["status"], answer["filePath"]) == ("ok", str(path))
        assert answer["overriddenMetadata"] is None
        assert tomllib.loads(path.read_text("utf-8"))["model_provider"] == "other"
        assert (await w.client.call("modelProvider/list", {}))["defaultProviderId"] == "other"


async def test_a_user_who_reserves_rights_sets_the_default_provider_alone(world: MakeWorld) -> None:
    tables = '[model_providers.other]\nname = "O"\nbase_url = "http://127.0.0.1:9/v1"\n'
    tables += "[app_server]\nclient_rights = false\n"
    async with world(tables=tables) as w:
        assert (await w.client.call("modelProvider/list", {}))["canChangeDefault"] is False
        with pytest.raises(Refused, match="client_rights to false"):
            await w.client.call("modelProvider/default/set", {"providerId": "other"})
        assert 'model_provider = "scripted"' in (w.home / "config.toml").read_text("utf-8")


@pytest.mark.parametrize(("policy", "notices"), [("untrusted", 1), ("on-request", 0)])
async def test_a_policy_that_codex_dropped_is_told_once(world: MakeWorld, policy: str, notices: int) -> None:
    async with world(
        reply(says("one")), reply(says("two")), config={"approval_policy": policy}, capabilities={}
    ) as w:
        await talk(w.client)
        answer = await w.client.call("thread/start", {})
        assert answer["approvalPolicy"] == policy
        told = heard(w.client, "deprecationNotice")
        assert len(told) == notices
        assert all("untrusted" in each["summary"] and "on-request" in each["details"] for each in told)


async def test_clients_of_the_conversation_api_are_not_told(world: MakeWorld) -> None:
    async with world(config={"approval_policy": "untrusted"}) as w:
        await w.open()
        assert heard(w.client, "deprecationNotice") == heard(w.client, "codex/event/deprecation_notice") == []


async def test_a_request_that_is_a_risk_to_biological_security(world: MakeWorld) -> None:
    refusal: Json = {"error": {"code": "bio_policy", "message": "not this"}}
    async with world(failure(400, refusal)) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        error = (await ended(w.client, await turn(w.client, thread)))["error"]
        assert error["codexErrorInfo"] == "bioPolicy"
        assert "not this" in error["message"]


def test_no_message_of_codex_that_is_gone_is_left() -> None:
    shapes = "\n".join(path.read_text("utf-8") for path in Path(ROOT, "schema", "v2").glob("*.json"))
    assert "currentTime/read" not in shapes


async def test_a_stored_turn_has_its_id_and_its_permission_profile(world: MakeWorld) -> None:
    """Front ends read both from the file."""
    async with world(reply(says("hi")), capabilities=EXPERIMENTAL) as w:
        thread = (await w.client.call("thread/start", {"permissions": ":read-only"}))["thread"]
        id = await say(w.client, thread["id"])
        lines = map(json.loads, Path(thread["path"]).read_text("utf-8").splitlines())
        (context,) = (line["payload"] for line in lines if line["type"] == "turn_context")
        assert context["turn_id"] == id
        assert context["active_permission_profile"] == {"id": ":read-only", "extends": None}
        assert context["permission_profile"]["file_system"]
        assert thread["historyMode"] == "paginated"
        resumed = await join(w.client, thread["id"])
        assert [each["id"] for each in resumed["thread"]["turns"]] == [id]
        assert heard(w.client, "deprecationNotice") == []
