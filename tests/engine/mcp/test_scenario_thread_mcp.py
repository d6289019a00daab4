"""MCP servers over the thread API: their start, their tools and resources, calls of the client, restarts."""

import json
import sys

import pytest

from app_server_protocol.encoding import Json
from tests.engine.mcp.test_scenario_mcp import table
from tests.support import modern_mcp_server
from tests.support.client import Refused
from tests.support.scripted_model import calls, reply, says
from tests.support.thread_client import notified, say, start, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

DEAD = '[mcp_servers.dead]\ncommand = "/nowhere/at-all"\n'
OFF = '[mcp_servers.off]\ncommand = "/nowhere/at-all"\nenabled = false\n'
ABSENT = "019dd4d6-5fd5-7513-993d-a12d87d9c1c7"
STATUS = "mcpServer/startupStatus/updated"


async def state(w: World, name: str, status: str) -> Json:
    found = await w.client.expect(
        lambda m: m.get("method") == STATUS and (m["params"]["name"], m["params"]["status"]) == (name, status)
    )
    return found["params"]


async def servers(w: World, **params: Json) -> dict[str, Json]:
    listed = await w.client.call("mcpServerStatus/list", params)
    return {each["name"]: each for each in listed["data"]}


async def call(w: World, thread: str, tool: str, arguments: Json = None, server: str = "notes") -> Json:
    params = {"threadId": thread, "server": server, "tool": tool, "arguments": arguments}
    return await w.client.call("mcpServer/tool/call", params)


async def test_each_server_of_a_thread_is_told_of_behind_its_start(world: MakeWorld) -> None:
    async with world(reply(says("ok")), tables=table("notes") + DEAD + OFF) as w:
        thread = await start(w.client)
        await say(w.client, thread)
    told = [
        (m["params"]["name"], m["params"]["status"]) for m in w.client.received() if m.get("method") == STATUS
    ]
    assert [status for name, status in told if name == "notes"] == ["starting", "ready"]
    assert [status for name, status in told if name == "dead"] == ["starting", "failed"]
    assert "off" not in dict(told)
    methods = [m.get("method") for m in w.client.received()]
    assert methods.index("thread/started") < methods.index(STATUS)
    assert "warning" not in methods


async def test_the_reason_of_a_failure_is_told(world: MakeWorld) -> None:
    async with world(tables=DEAD) as w:
        thread = await start(w.client)
        failed = await state(w, "dead", "failed")
        assert failed["error"] == (
            "MCP client for `dead` failed to start: No such file or directory (os error 2)"
        )
        assert (failed["threadId"], failed["failureReason"]) == (thread, None)


async def test_a_thread_that_is_resumed_tells_of_its_servers(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        thread = await start(w.client)
        await say(w.client, thread)
    async with world(tables=DEAD) as w:
        await w.client.call("thread/resume", {"threadId": thread})
        await state(w, "dead", "failed")


async def test_servers_are_listed_with_what_they_offer(world: MakeWorld) -> None:
    web = '[mcp_servers.web]\nurl = "http://me:pw@[::1]:9/mcp?key=x"\nbearer_token_env_var = "UNSET"\n'
    async with world(tables=table("notes", disabled_tools='["hang"]') + DEAD + OFF + web) as w:
        found = await servers(w)
        assert list(found) == ["dead", "notes", "off", "web"]
        notes = found["notes"]
        assert sorted(notes["tools"]) == ["ask", "change", "echo", "fail"]
        assert notes["tools"]["echo"]["inputSchema"]["properties"] == {"text": {"type": "string"}}
        assert (notes["serverInfo"]["name"], notes["serverInfo"]["version"]) == ("notes", "1")
        assert notes["serverCapabilities"] == {"tools": {}, "resources": {}}
        assert [each["uri"] for each in notes["resources"]] == ["notes://one"]
        assert "No such file" in found["dead"]["toolsError"]
        assert (found["off"]["toolsError"], found["off"]["tools"]) == (None, {})
        assert (found["web"]["httpOrigin"], found["web"]["authStatus"]) == (
            "http://[::1]:9",
            "bearerToken",
        )
        assert {each["runtimeStatus"] for each in found.values()} == {None}
        thread = await start(w.client)
        of_thread = await servers(w, threadId=thread, detail="toolsAndAuthOnly")
        states = {name: each["runtimeStatus"] for name, each in of_thread.items()}
        assert states == {"dead": "failed", "notes": "connected", "off": "disabled", "web": "failed"}
        assert of_thread["notes"]["resources"] == []


async def test_servers_are_listed_by_pages_and_by_name(world: MakeWorld) -> None:
    async with world(tables=table("notes") + DEAD + OFF) as w:
        first = await w.client.call("mcpServerStatus/list", {"limit": 1})
        assert ([each["name"] for each in first["data"]], first["nextCursor"]) == (["dead"], "1")
        assert list(await servers(w, cursor="1")) == ["notes", "off"]
        assert list(await servers(w, serverName="off")) == ["off"]
        assert await servers(w, serverName="none") == {}
        with pytest.raises(Refused, match="invalid cursor: zzz"):
            await servers(w, cursor="zzz")


async def test_the_client_calls_tools_and_reads_resources(world: MakeWorld) -> None:
    async with world(tables=table("notes")) as w:
        thread = await start(w.client)
        assert await call(w, thread, "echo", {"text": "x"}) == {"content": [{"type": "text", "text": "x"}]}
        failed = await call(w, thread, "fail")
        assert failed == {"content": [{"type": "text", "text": "boom-7"}], "isError": True}
        read = {"server": "notes", "uri": "notes://one"}
        for params in (read, {**read, "threadId": thread, "originCallId": "c"}):
            found = await w.client.call("mcpServer/resource/read", params)
            assert found == {
                "contents": [{"uri": "notes://one", "text": "the first note"}],
                "originCallId": params.get("originCallId"),
            }
    assert w.model.requests == []


@pytest.mark.parametrize(
    ("method", "params", "message", "kind"),
    [
        ("tool/call", {"server": "none", "tool": "x"}, "unknown MCP server 'none'", "mcp"),
        ("tool/call", {"server": "off", "tool": "x"}, "unknown MCP server 'off'", "mcp"),
        ("tool/call", {"server": "dead", "tool": "x"}, "`dead` failed to start", "mcp"),
        ("tool/call", {"server": "notes", "tool": "none"}, "no tool none", "mcp"),
        ("tool/call", {"server": "notes", "tool": "hang"}, "tool 'hang' is disabled", "mcp"),
        ("tool/call", {"server": "notes", "tool": "echo", "arguments": 5}, "must be a JSON object", "mcp"),
        ("resource/read", {"server": "none", "uri": "x"}, "unknown MCP server 'none'", "mcp"),
        ("resource/read", {"server": "dead", "uri": "x"}, "`dead` failed to start", "mcp"),
        ("oauth/login", {"name": "notes"}, "only supported for streamable HTTP servers", "unsupported"),
        ("oauth/login", {"name": "none"}, "No MCP server named 'none' found", "mcp_server_not_found"),
    ],
)
async def test_what_a_server_cannot_do_is_an_error(
    world: MakeWorld, method: str, params: dict[str, Json], message: str, kind: str
) -> None:
    async with world(tables=table("notes", disabled_tools='["hang"]') + DEAD + OFF) as w:
        thread = await start(w.client)
        given = params if method == "oauth/login" else {**params, "threadId": thread}
        with pytest.raises(Refused, match=message) as refused:
            await w.client.call(f"mcpServer/{method}", given)
        assert refused.value.data["kind"] == kind
        with pytest.raises(Refused, match="thread not found"):
            await w.client.call("mcpServerStatus/list", {"threadId": ABSENT})


async def test_a_server_may_ask_during_a_call_of_the_client(world: MakeWorld) -> None:
    async with world(tables=table("notes")) as w:
        thread = await start(w.client)
        params = {"threadId": thread, "server": "notes", "tool": "ask"}
        id = await w.client.send("mcpServer/tool/call", params)
        question = await w.client.expect("mcpServer/elicitation/request")
        assert (question["params"]["threadId"], question["params"]["turnId"]) == (thread, None)
        await w.client.answer(question, {"action": "accept", "content": {"project": "mine"}})
        done = await w.client.expect(lambda m: m.get("id") == id and "result" in m)
        assert "mine" in done["result"]["content"][0]["text"]


async def test_a_call_that_hangs_holds_up_nobody(world: MakeWorld) -> None:
    async with world(reply(says("ok")), tables=table("notes")) as w:
        thread = await start(w.client)
        await w.client.send("mcpServer/tool/call", {"threadId": thread, "server": "notes", "tool": "hang"})
        assert await call(w, thread, "echo", {"text": "x"})
        await say(w.client, thread)
        await w.client.leave()


async def test_servers_are_started_anew_from_the_present_settings(world: MakeWorld) -> None:
    async with world(
        reply(calls("mcp__later__echo", {"text": "x"}, "m1")), reply(says("ok")), tables=DEAD
    ) as w:
        own = {"mcp_servers.own": {"command": "/nowhere/too"}}
        thread = await start(w.client, config=own)
        await state(w, "own", "failed")
        path = w.home / "config.toml"
        path.write_text(path.read_text().replace(DEAD, table("later")))
        assert await w.client.call("config/mcpServer/reload") == {}
        await state(w, "later", "ready")
        assert list(await servers(w, threadId=thread)) == ["later", "own"]
        await say(w.client, thread)
    assert "mcp__later__echo" in w.model.requests[0].tools
    assert w.model.requests[1].outputs()["m1"] == '[{"text":"x","type":"text"}]'


async def test_a_thread_without_servers_gets_those_that_were_added(world: MakeWorld) -> None:
    async with world() as w:
        thread = await start(w.client)
        path = w.home / "config.toml"
        path.write_text(path.read_text() + table("notes"))
        await w.client.call("config/mcpServer/reload")
        await state(w, "notes", "ready")
        assert await call(w, thread, "echo", {"text": "x"})


async def test_settings_that_cannot_be_read_leave_the_servers_running(world: MakeWorld) -> None:
    async with world(tables=table("notes")) as w:
        thread = await start(w.client)
        await state(w, "notes", "ready")
        path = w.home / "config.toml"
        text = path.read_text()
        path.write_text("model = [")
        with pytest.raises(Refused, match=r"config\.toml:1:"):
            await w.client.call("config/mcpServer/reload")
        path.write_text(text)
        assert await call(w, thread, "echo", {"text": "x"})


def strict_table() -> str:
    """Return the table of a server of the revision 2026-07-28 alone."""
    arguments = json.dumps([modern_mcp_server.__file__, "stdio"])
    return f'[mcp_servers.new]\ncommand = "{sys.executable}"\nargs = {arguments}\n'


async def test_a_stateless_server_is_shown_with_its_revision_and_asks_the_user(world: MakeWorld) -> None:
    replies = reply(calls("mcp__new__order", {}, "m1")), reply(says("ok"))
    async with world(*replies, tables=strict_table()) as w:
        w.client.decide("mcpServer/elicitation/request", {"action": "accept", "content": {"n": 3}})
        thread = await start(w.client)
        assert (await state(w, "new", "ready"))["protocolVersion"] == "2026-07-28"
        await say(w.client, thread)
        status = (await servers(w, threadId=thread))["new"]
        (question,) = notified(w, "mcpServer/elicitation/request")
    assert (status["protocolVersion"], status["serverInfo"]["name"]) == ("2026-07-28", "strict")
    assert (question["serverName"], question["message"]) == ("new", "How many?")
    (block,) = json.loads(w.model.requests[1].outputs()["m1"])
    assert json.loads(block["text"]) == {"count": {"action": "accept", "content": {"n": 3}}}


async def test_a_question_of_a_stateless_server_ends_with_its_turn(world: MakeWorld) -> None:
    replies = (
        reply(calls("mcp__new__order", {}, "m1")),
        reply(calls("mcp__new__echo", {"text": "hello"}, "m2")),
        reply(says("ok")),
    )
    async with world(*replies, tables=strict_table()) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread)
        question = await w.client.expect("mcpServer/elicitation/request")
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        resolved = await w.client.expect("serverRequest/resolved")
        assert resolved["params"]["requestId"] == question["id"]
        await say(w.client, thread, "again")
        assert "hello" in w.model.requests[-1].outputs()["m2"]
