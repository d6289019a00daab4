"""MCP servers in a conversation, logins at them, and logins with a device code."""

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app_server_protocol.encoding import Json
from tests.engine.auth.oauth_issuer import scripted_issuer
from tests.support.client import Decider, Refused
from tests.support.protected_mcp_server import ProtectedMcpServer, protected_mcp_server
from tests.support.scripted_model import calls, reply, says, script
from tests.support.thread_client import notified, say, start
from tests.support.world import MakeWorld, Transport, World

pytestmark = pytest.mark.scenario

SERVER = Path(__file__).resolve().parents[2] / "support" / "mcp_server.py"


def table(name: str, *arguments: str, **settings: str) -> str:
    listed = ", ".join(f'"{each}"' for each in (str(SERVER), *arguments))
    lines = [f"{key} = {value}" for key, value in settings.items()]
    return "\n".join(
        [f"[mcp_servers.{name}]", f'command = "{sys.executable}"', f"args = [{listed}]", *lines, ""]
    )


async def test_a_tool_of_a_server_is_offered_called_and_answers(world: MakeWorld) -> None:
    call = calls("mcp__notes__echo", {"text": "hello"}, "m1")
    async with world(reply(call), reply(says("ok")), tables=table("notes")) as w:
        turn = await w.client.turn(await w.open())
    assert "mcp__notes__echo" in w.model.requests[0].tools
    (begin,) = turn.of("mcp_tool_call_begin")
    assert begin["invocation"] == {"server": "notes", "tool": "echo", "arguments": {"text": "hello"}}
    (end,) = turn.of("mcp_tool_call_end")
    assert end["result"]["Ok"]["content"] == [{"type": "text", "text": "hello"}]
    assert "hello" in w.model.requests[1].outputs()["m1"]


@pytest.mark.parametrize("arguments", ["", " ", "null"])
async def test_a_tool_can_be_called_without_arguments(world: MakeWorld, arguments: str) -> None:
    call = calls("mcp__notes__echo", arguments, "m1")
    async with world(reply(call), reply(says("ok")), tables=table("notes")) as w:
        turn = await w.client.turn(await w.open())
    for kind in ("mcp_tool_call_begin", "mcp_tool_call_end"):
        (event,) = turn.of(kind)
        assert event["invocation"] == {"server": "notes", "tool": "echo", "arguments": None}
    (end,) = turn.of("mcp_tool_call_end")
    assert "Ok" in end["result"]


async def test_a_tool_that_fails_is_told_to_the_model(world: MakeWorld) -> None:
    both = calls("mcp__notes__fail", {}, "m1"), calls("mcp__notes__missing", {}, "m2")
    async with world(reply(*both), reply(says("ok")), tables=table("notes")) as w:
        turn = await w.client.turn(await w.open())
    assert turn.last_message == "ok"
    outputs = w.model.requests[1].outputs()
    assert "boom-7" in outputs["m1"]
    assert outputs["m2"]


async def test_a_server_that_dies_costs_a_notice_and_no_turn(world: MakeWorld) -> None:
    tables = table("dead", "--die", startup_timeout_sec="5") + table("notes")
    async with world(reply(says("ok")), tables=tables) as w:
        conversation = await w.open()
        assert (await w.client.turn(conversation)).last_message == "ok"
        told = [e["message"] for kind in ("error", "warning") for e in w.client.events(kind)]
        assert any("dead" in message for message in told)
    assert "mcp__notes__echo" in w.model.requests[0].tools


async def test_tools_are_listed_for_whoever_asks(world: MakeWorld) -> None:
    async with world(tables=table("notes")) as w:
        await w.client.submit(await w.open(), {"type": "list_mcp_tools"})
        listed = (await w.client.expect("mcp_list_tools_response"))["params"]["msg"]
    assert {"mcp__notes__echo", "mcp__notes__fail"} <= listed["tools"].keys()
    assert [each["uri"] for each in listed["resources"]["notes"]] == ["notes://one"]


async def test_resources_can_be_read_by_the_model(world: MakeWorld) -> None:
    both = (
        calls("list_mcp_resources", {}, "m1"),
        calls("read_mcp_resource", {"server": "notes", "uri": "notes://one"}, "m2"),
        calls("read_mcp_resource", {"server": "absent", "uri": "notes://one"}, "m3"),
        calls("read_mcp_resource", {"server": " ", "uri": "notes://one"}, "m4"),
    )
    async with world(reply(*both), reply(says("ok")), tables=table("notes")) as w:
        await w.client.turn(await w.open())
    outputs = w.model.requests[1].outputs()
    assert "notes://one" in outputs["m1"]
    assert "the first note" in outputs["m2"]
    assert "absent" in outputs["m3"]
    assert "server must be provided" in outputs["m4"]


def accepts(request: Json) -> Json:
    assert request["params"]["serverName"] == "notes"
    return {"action": "accept", "content": {"project": "web"}}


def declines(request: Json) -> Json:
    return {"action": "decline"}


@pytest.mark.parametrize("transport", ["memory", "process"])
@pytest.mark.parametrize(("decider", "said"), [(accepts, "accept"), (declines, "decline")])
async def test_a_server_may_ask_the_user(
    world: MakeWorld, decider: Decider, said: str, transport: Transport
) -> None:
    """If the server runs as a process, the handshake ends before the module is loaded that knows the client's
    capabilities.
    """
    call = calls("mcp__notes__ask", {}, "m1")
    async with world(
        reply(call),
        reply(says("ok")),
        tables=table("notes"),
        transport=transport,
        capabilities={"elicitation": True},
    ) as w:
        w.client.decide("elicitationRequest", decider)
        await w.client.turn(await w.open())
    assert said in w.model.requests[1].outputs()["m1"]


async def test_a_client_that_cannot_ask_is_not_asked(world: MakeWorld) -> None:
    async with world(
        reply(calls("mcp__notes__ask", {}, "m1")), reply(says("ok")), tables=table("notes")
    ) as w:
        turn = await w.client.turn(await w.open())
        assert not notified(w, "elicitationRequest")
    assert turn.last_message == "ok"


@pytest.mark.parametrize("settings", [{}, {"cwd": '"workspace"'}])
async def test_a_server_takes_no_module_from_the_workspace(
    world: MakeWorld, settings: dict[str, str]
) -> None:
    """Neither a repository nor an earlier command can change what runs outside of the sandbox."""
    args, env = f'["-m", "{SERVER.stem}"]', f'{{ PYTHONPATH = "{SERVER.parent}" }}'
    given = table("notes", args=args, env=env, **settings).replace(f'args = ["{SERVER}"]\n', "")
    call = calls("mcp__notes__echo", {"text": "hello"}, "m1")
    planted = {"json.py": "open('planted', 'w')\nraise SystemExit\n"}
    async with world(reply(call), reply(says("ok")), tables=given, files=planted) as w:
        await w.client.turn(await w.open())
        assert "hello" in w.model.requests[1].outputs()["m1"]
        assert not list(w.root.rglob("planted"))


async def test_programs_that_commands_may_change_are_told_once(world: MakeWorld, tmp_path: Path) -> None:
    temporary = {"exclude_slash_tmp": True, "exclude_tmpdir_env_var": True}
    config = {"sandbox_mode": "workspace-write"}
    commands = [reply(script("true")), reply(says("ok"))] * 2
    async with world(*commands, config=config, files={"tools/server.py": ""}, git=True) as w:
        inside = w.workspace / "tools" / "server.py"
        (w.workspace / ".git" / "kept.py").write_text("")
        settings = {
            "sandbox_workspace_write": temporary,
            "notify": [sys.executable, str(inside)],
            "mcp_servers.a": {
                "command": sys.executable,
                "args": ["tools/server.py", str(SERVER)],
                "cwd": "workspace",
            },
            "mcp_servers.b": {"command": sys.executable, "args": [str(w.workspace / ".git" / "kept.py")]},
            "mcp_servers.c": {"command": str(inside), "enabled": False},
        }
        opened = await w.open(config=settings)
        turns = [await w.client.turn(opened) for _ in range(2)]
        told = [
            event["message"] for turn in turns for event in turn.of("warning") if "runs" in event["message"]
        ]
        assert told == [
            f"{who} runs {inside} outside of the sandbox, and commands may change it: move it out of {w.workspace}."
            for who in ("`notify`", "The MCP server a")
        ]


LOGIN, COMPLETED = "mcpServer/oauth/login", "mcpServer/oauthLogin/completed"
LOOPBACK = {"NO_PROXY": "127.0.0.1"}


@pytest.fixture
def remote() -> Iterator[ProtectedMcpServer]:
    with protected_mcp_server() as server:
        yield server


def login_table(remote: ProtectedMcpServer) -> str:
    return f'[mcp_servers.remote]\nurl = "{remote.mcp_url}"\n'


async def visit(url: str) -> int:
    async with httpx2.AsyncClient(trust_env=False) as browser:
        return (await browser.get(url)).status_code


async def server_status(w: World) -> Json:
    [status] = (await w.client.call("mcpServerStatus/list", {}))["data"]
    return status


async def log_in(w: World, remote: ProtectedMcpServer) -> Json:
    started = await w.client.call(LOGIN, {"name": "remote"})
    assert await visit(remote.browser(started["authorizationUrl"])) == 200
    completed = (await w.client.expect(COMPLETED))["params"]
    assert completed["loginId"] == started["loginId"]
    return completed


@pytest.mark.parametrize("transport", ["memory", pytest.param("process", marks=pytest.mark.process)])
async def test_a_server_is_used_with_the_login(
    world: MakeWorld, remote: ProtectedMcpServer, transport: Transport
) -> None:
    async with world(tables=login_table(remote), environment=LOOPBACK, transport=transport) as w:
        before = await server_status(w)
        assert before["authStatus"] == "notLoggedIn"
        completed = await log_in(w, remote)
        assert (completed["name"], completed["success"], completed["error"]) == ("remote", True, None)
        [asked] = remote.asked("/register")
        assert asked["token_endpoint_auth_method"] == "none"
        after = await server_status(w)
        assert (after["authStatus"], list(after["tools"])) == ("oAuth", ["echo"])
        # The server revokes a token. It is refreshed, and the new one is stored.
        remote.good_tokens.clear()
        assert list((await server_status(w))["tools"]) == ["echo"]
        stored = w.home / ".credentials.json"
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
        [entry] = json.loads(stored.read_text()).values()
        assert (entry["access_token"], entry["refresh_token"]) == ("secret-access-2", "secret-refresh-2")
        # A login that has ended does not count.
        remote.good_tokens.clear()
        remote.refresh_tokens.clear()
        assert (await server_status(w))["authStatus"] == "notLoggedIn"
    assert "secret-" not in json.dumps(w.client.received())


async def test_a_thread_uses_it_after_a_reload(world: MakeWorld, remote: ProtectedMcpServer) -> None:
    async with world(tables=login_table(remote), environment=LOOPBACK) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        params = {"threadId": thread, "server": "remote", "tool": "echo", "arguments": {}}
        with pytest.raises(Refused):
            await w.client.call("mcpServer/tool/call", params)
        await log_in(w, remote)
        await w.client.call("config/mcpServer/reload", {})
        called = await w.client.call("mcpServer/tool/call", params)
        assert called["content"] == [{"type": "text", "text": "called"}]


async def test_a_call_that_needs_more_scopes_says_how_to_get_them(
    world: MakeWorld, remote: ProtectedMcpServer
) -> None:
    async with world(tables=login_table(remote), environment=LOOPBACK) as w:
        await log_in(w, remote)
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        remote.needs = 'Bearer error="insufficient_scope", scope="write read"'
        params = {"threadId": thread, "server": "remote", "tool": "echo", "arguments": {}}
        with pytest.raises(Refused, match="app-server mcp login remote --scopes read,write"):
            await w.client.call("mcpServer/tool/call", params)
        assert len(remote.asked("/authorize")) == 0


async def test_the_users_own_client_logs_in_and_its_secret_is_masked(
    world: MakeWorld, remote: ProtectedMcpServer
) -> None:
    remote.client = ("mine", "hush-1")
    own = '[mcp_servers.remote.oauth]\nclient_id = "mine"\nclient_secret = "hush-1"\n'
    async with world(tables=login_table(remote) + own, environment=LOOPBACK) as w:
        assert (await log_in(w, remote))["success"]
        assert (await server_status(w))["authStatus"] == "oAuth"
        shown = (await w.client.call("config/read", {}))["config"]["mcp_servers"]["remote"]["oauth"]
        assert (shown["client_id"], shown["client_secret"] != "hush-1") == ("mine", True)
    assert remote.asked("/register") == []
    assert "hush-1" not in json.dumps(w.client.received())


async def test_a_login_ends_when_it_is_cancelled_or_another_begins(
    world: MakeWorld, remote: ProtectedMcpServer
) -> None:
    async with world(tables=login_table(remote), environment=LOOPBACK) as w:
        first = await w.client.call(LOGIN, {"name": "remote"})
        second = await w.client.call(LOGIN, {"name": "remote", "scopes": ["a", "b"]})
        assert "scope=a%20b" in second["authorizationUrl"]
        ended = (await w.client.expect(COMPLETED))["params"]
        assert (ended["loginId"], ended["success"], ended["error"]) == (
            first["loginId"],
            False,
            "the login was cancelled",
        )
        cancelled = await w.client.call("account/login/cancel", {"loginId": second["loginId"]})
        assert cancelled == {"status": "canceled"}
        assert (await w.client.expect(COMPLETED))["params"]["loginId"] == second["loginId"]
        assert not (w.home / ".credentials.json").exists()


async def test_only_the_answer_to_this_login_counts(world: MakeWorld, remote: ProtectedMcpServer) -> None:
    async with world(tables=login_table(remote), environment=LOOPBACK) as w:
        started = await w.client.call(LOGIN, {"name": "remote"})
        assert await visit(remote.browser(started["authorizationUrl"], state="other")) == 400
        assert await visit(remote.browser(started["authorizationUrl"], iss="https://other.example")) == 502
        ended = (await w.client.expect(COMPLETED))["params"]
        assert (ended["success"], ended["error"]) == (
            False,
            "the answer comes from another authorization server",
        )
        assert remote.asked("/token") == []


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"name": "none"}, "No MCP server named 'none' found"),
        ({"name": "local"}, "only supported for streamable HTTP servers"),
        ({"name": "keyed"}, "names a token of its own"),
        ({"name": "plain"}, "needs a server with encryption"),
        ({"name": "remote", "timeoutSecs": 0}, "timeoutSecs must be between 1 and 3600, not 0"),
        ({"name": "remote", "scopes": ["a b"]}, "scopes must be"),
    ],
)
async def test_logins_that_are_refused(
    world: MakeWorld, remote: ProtectedMcpServer, params: Json, text: str
) -> None:
    tables = (
        f"{login_table(remote)}[mcp_servers.local]\ncommand = 'true'\n"
        '[mcp_servers.keyed]\nurl = "https://x.example/mcp"\nbearer_token_env_var = "KEY"\n'
        '[mcp_servers.plain]\nurl = "http://x.example/mcp"\n'
    )
    async with world(tables=tables, environment=LOOPBACK) as w:
        with pytest.raises(Refused, match=text):
            await w.client.call(LOGIN, params)
        assert remote.requests == []


START = "account/login/start"
DEVICE = {"type": "chatgptDeviceCode"}


@pytest.mark.parametrize("transport", ["memory", pytest.param("process", marks=pytest.mark.process)])
async def test_a_login_with_a_device_code(world: MakeWorld, transport: Transport) -> None:
    with scripted_issuer() as issuer:
        issuer.device_polls = [(403, {})]
        environment = {"APP_SERVER_AUTH_ISSUER": issuer.url, "NO_PROXY": "127.0.0.1"}
        async with world(environment=environment, transport=transport) as w:
            started = await w.client.call(START, DEVICE)
            assert started == {
                "type": "chatgptDeviceCode",
                "loginId": started["loginId"],
                "verificationUrl": f"{issuer.url}/codex/device",
                "userCode": "ABCD-1234",
            }
            completed = (await w.client.expect("account/login/completed"))["params"]
            assert completed == {"loginId": started["loginId"], "success": True, "error": None}
            updated = (await w.client.expect("account/updated"))["params"]
            assert (updated["authMode"], updated["planType"]) == ("chatgpt", "pro")
            assert json.loads((w.home / "auth.json").read_text())["tokens"]["access_token"] == "access-1"
        assert "access-1" not in json.dumps(w.client.received())


async def test_a_login_with_a_device_code_is_cancelled(world: MakeWorld) -> None:
    with scripted_issuer() as issuer:
        issuer.device_polls = [(403, {})] * 100_000
        environment = {"APP_SERVER_AUTH_ISSUER": issuer.url, "NO_PROXY": "127.0.0.1"}
        async with world(environment=environment) as w:
            first = await w.client.call(START, DEVICE)
            second = await w.client.call(START, DEVICE)
            ended = (await w.client.expect("account/login/completed"))["params"]
            assert (ended["loginId"], ended["success"]) == (first["loginId"], False)
            await w.client.call("account/login/cancel", {"loginId": second["loginId"]})
            ended = (await w.client.expect("account/login/completed"))["params"]
            assert ended == {
                "loginId": second["loginId"],
                "success": False,
                "error": "the login was cancelled",
            }
            issuer.device = (404, {})
            with pytest.raises(Refused, match="no logins with a device code"):
                await w.client.call(START, DEVICE)


@pytest.mark.parametrize(("forced", "headers"), [("api", ["Bearer sk-mine"]), ("chatgpt", [])])
async def test_the_settings_decide_which_login_the_model_is_asked_with(
    world: MakeWorld, forced: str, headers: list[str]
) -> None:
    """The login is chosen without an earlier request about the account. The wrong login is not used, and counts as
    none.
    """

    def store(w: Json) -> None:
        (w.home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-mine"}')

    how: Json = {"config": {"forced_login_method": forced}, "provider": {"requires_openai_auth": True}}
    async with world(reply(says("hi")), before=store, **how) as w:
        await say(w.client, await start(w.client))
        assert [each.headers.get("authorization") for each in w.model.requests] == headers
