"""Sessions of the Agent Client Protocol: their servers, folders, modes and options, lists, replays, and logging
in."""

import os
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.engine.auth.oauth_issuer import ScriptedIssuer, scripted_issuer
from tests.engine.auth.test_accounts import browse
from tests.engine.mcp.scripted_http import ScriptedHttp, reply_json
from tests.server.apis.acp.test_scenario_session_prompts import PNG, mcp_server
from tests.support.editor import EVERYTHING, Editor, loaded, opened
from tests.support.http_server import HttpHandler
from tests.support.scripted_model import Hold, begins_to_say, calls, done, patches, reply, says, script
from tests.support.world import MakeWorld

pytestmark = pytest.mark.scenario

NEEDS_LOGIN: Json = {"requires_openai_auth": True}


# --- MCP servers
async def test_a_server_of_the_client_is_added_to_those_of_the_configuration(world: MakeWorld) -> None:
    server = str(Path(__file__).parents[3] / "support" / "mcp_server.py")
    tables = f'[mcp_servers.own]\ncommand = "{sys.executable}"\nargs = ["{server}"]\n'
    tables += '[mcp_servers.notes]\ncommand = "/no/such/program"'
    replies = reply(calls("mcp__notes__echo", {"text": "hello"}, "m1")), reply(says("ok"))
    async with world(*replies, tables=tables, acp=True) as w:
        editor, session = await opened(w, EVERYTHING, mcpServers=[mcp_server(name="my notes"), mcp_server()])
        assert await editor.ends(session) == "end_turn"
        tools = w.model.requests[0].tools
        assert {"mcp__own__echo", "mcp__notes__echo", "mcp__my_notes__echo"} <= set(tools)
        (call,) = editor.calls().values()
        assert (call["title"], call["kind"], call["seen"]) == (
            "notes: echo",
            "other",
            ["in_progress", "completed"],
        )
        assert call["content"] == [{"type": "content", "content": {"type": "text", "text": "hello"}}]
        assert editor.updates("notice") == [], "the configured server of that name is not started"
        assert await editor.ends(session, "/mcp") == "end_turn"
        assert "- my_notes" in editor.text()


async def test_a_server_over_http(world: MakeWorld) -> None:
    def answer(handler: HttpHandler, message: Json) -> bool:
        if message.get("method") != "tools/call":
            return False
        result = {"content": [{"type": "text", "text": "hello"}]}
        reply_json(handler, message, result)
        return True

    peer = ScriptedHttp(answer)
    replies = reply(calls("mcp__web__echo", {}, "m1")), reply(says("ok"))
    with peer.serving() as url:
        headers = [{"name": "X-Token", "value": "given"}]
        server = {"type": "http", "name": "web", "url": url, "headers": headers}
        async with world(*replies, acp=True) as w:
            editor, session = await opened(w, mcpServers=[server])
            assert await editor.ends(session) == "end_turn"
            assert "hello" in w.model.requests[1].outputs()["m1"]
    assert {one.headers.get("X-Token", one.headers.get("x-token")) for one in peer.asked} == {"given"}


# --- what is announced
async def test_initialize_announces_what_is_served_and_nothing_else(world: MakeWorld) -> None:
    announced = {
        "list": "session/list",
        "resume": "session/resume",
        "close": "session/close",
        "delete": "session/delete",
        "fork": "session/fork",
        "title": "session/set_title",
    }
    async with world(acp=True) as w:
        editor = Editor(w)
        capabilities = (await editor.start())["agentCapabilities"]
        sessions = capabilities["sessionCapabilities"]
        assert sessions.keys() == {*announced, "additionalDirectories", "systemPrompt"}
        assert sessions["systemPrompt"] == {"mode": {"override": {}}}
        for method in (*announced.values(), "session/load"):
            answer = await w.client.ask(method, {"sessionId": "none", "title": "t", "cwd": "/"})
            assert answer.get("error", {}).get("code") != -32601, method
        assert "providers" not in capabilities
        for method in (
            "session/archive",
            "session/unarchive",
            "session/status",
            "providers/list",
            "auth/status",
        ):
            assert (await w.client.ask(method, {}))["error"]["code"] == -32601


# --- modes and options
async def test_the_mode_and_its_option_are_always_the_same(world: MakeWorld) -> None:
    config = {"approval_policy": "on-request", "sandbox_mode": "workspace-write"}
    async with world(config=config, acp=True) as w:
        editor = Editor(w)
        await editor.start()
        made = await w.client.call("session/new", editor.opening())
        session, modes = made["sessionId"], made["modes"]
        assert [each["id"] for each in modes["availableModes"]] == [
            *("read-only", "workspace-write", "agent-full-access")
        ]
        option = next(each for each in made["configOptions"] if each["category"] == "mode")
        assert [each["value"] for each in option["options"]] == [
            each["id"] for each in modes["availableModes"]
        ]
        assert option["currentValue"] == modes["currentModeId"] == "workspace-write"
        chosen = {"sessionId": session, "configId": "mode", "value": "read-only"}
        answer = await w.client.call("session/set_config_option", chosen)
        assert answer["configOptions"][0]["currentValue"] == "read-only"
        assert (await editor.update("current_mode_update"))["currentModeId"] == "read-only"
        for method, params in (
            ("session/set_mode", {"modeId": "yolo"}),
            ("session/set_config_option", {"configId": "mode", "value": "yolo"}),
            ("session/set_config_option", {"configId": "colour", "value": "red"}),
            ("session/set_config_option", {"configId": "mode", "value": True, "type": "boolean"}),
            ("session/new", editor.opening(mcpServers=[{"type": "sse", "name": "old", "url": "http://x"}])),
        ):
            assert (await w.client.ask(method, {"sessionId": session, **params}))["error"]["code"] == -32602
        assert [each["currentModeId"] for each in editor.updates("current_mode_update")] == ["read-only"]


@pytest.mark.parametrize(
    ("wanted", "begun"), [("read-only", "read-only"), ("no such mode", "agent-full-access")]
)
async def test_the_environment_may_name_the_first_mode(world: MakeWorld, wanted: str, begun: str) -> None:
    async with world(environment={"INITIAL_AGENT_MODE": wanted}, acp=True) as w:
        editor = Editor(w)
        await editor.start()
        made = await w.client.call("session/new", editor.opening())
        assert made["modes"]["currentModeId"] == begun


# --- lists
async def test_sessions_are_listed_by_pages_and_without_the_archived_ones(world: MakeWorld) -> None:
    head = (
        '{{"timestamp":"2026-01-01T00:00:00.000Z","type":"session_meta","payload":{{"id":"{0}","timestamp":'
    )
    head += '"2026-01-01T00:00:00.000Z","cwd":"/w{1}","originator":"codex","cli_version":"0.58.0","source":"cli"}}}}'
    said = '{{"timestamp":"2026-01-01T00:00:01.000Z","type":"event_msg","payload":{{"type":"user_message",'
    said += '"message":"words {0}"}}}}'
    ids = [f"01990000-0000-7000-8000-{n:012}" for n in range(120)]
    files = {
        f"../home/sessions/2026/01/01/rollout-2026-01-01T00-00-00-{id}.jsonl": "\n".join(
            (head.format(id, n % 2), said.format(n), "")
        )
        for n, id in enumerate(ids)
    }
    archived = (
        f"../home/archived_sessions/rollout-2026-01-01T00-00-00-{ids[0].replace('000', '111', 1)}.jsonl"
    )
    async with world(files={**files, archived: "x"}, acp=True) as w:
        for n, name in enumerate(files):
            os.utime(w.workspace / name, (1_770_000_000 + n,) * 2)
        await opened(w)
        found, cursor = list[Json](), None
        while True:
            page = await w.client.call("session/list", {} if cursor is None else {"cursor": cursor})
            found += page["sessions"]
            assert len(page["sessions"]) <= 50
            if (cursor := page.get("nextCursor")) is None:
                break
        assert [each["sessionId"] for each in found] == ids[::-1]
        assert found[0]["title"] == "words 119"
        assert found[0]["updatedAt"].startswith("2026-02-02T")
        of_one = await w.client.call("session/list", {"cwd": "/w1"})
        assert {each["cwd"] for each in of_one["sessions"]} == {"/w1"}


# --- replays
async def test_a_replay_shows_what_was_live(world: MakeWorld) -> None:
    thought = done(
        {"type": "reasoning", "id": "rs-1", "summary": [{"type": "summary_text", "text": "**Hm**"}]}
    )
    plan = calls("update_plan", {"plan": [{"step": "one", "status": "completed"}]}, "c0")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-a\n+b\n*** End Patch"
    replies = (
        reply(thought, says("I look.", "msg-1"), plan, script("cat a.txt", "c1")),
        reply(patches(patch, "c2"), script("echo no; exit 3", "c3")),
        reply(says("Done.", "msg-2")),
    )
    kept = ("title", "kind", "status", "locations", "rawInput", "rawOutput", "name")
    async with world(*replies, files={"a.txt": "a\n"}, acp=True) as w:
        editor, session = await opened(w)
        picture = {"type": "image", "mimeType": "image/png", "data": PNG}
        await editor.ends(session, "look at this", picture, "please")
        live, said = editor.calls(), (editor.text(), editor.text("agent_thought_chunk"))
    async with world(reply(says("more")), acp=True) as w:
        again, _ = await loaded(w, session, {"_meta": {"terminal_output": True}})
        told = again.calls()
        assert {id: [call.get(key) for key in kept] for id, call in told.items()} == {
            id: [call.get(key) for key in kept] for id, call in live.items()
        }
        assert told["c1"]["content"] == live["c1"]["content"], "no display is opened for what is over"
        assert all(call["seen"] in (["completed"], ["failed"]) for call in told.values())
        assert (again.text(), again.text("agent_thought_chunk")) == said
        user = again.updates("user_message_chunk")
        assert [each["content"]["type"] for each in user] == ["text", "image", "text"]
        assert len({each["messageId"] for each in user}) == 1
        assert len(again.updates("plan")) == len(again.updates("usage_update")) == 1
        log = w.client.received()
        answer = next(n for n, m in enumerate(log) if m.get("id") == 2)
        after = {m["params"]["update"]["sessionUpdate"] for m in log[answer:] if "params" in m}
        assert after <= {"available_commands_update"}
        assert await again.ends(session, "go on") == "end_turn"
        assert w.model.requests[0].texts()[-1] == "go on"


async def test_a_call_whose_end_was_never_stored_is_told_as_failed(world: MakeWorld) -> None:
    async with world(reply(script("echo up; exec sleep 300")), acp=True, transport="process") as w:
        editor, session = await opened(w)
        await editor.prompt(session, "please")
        await editor.update("tool_call_update")
        await w.client.leave()
    path = w.rollouts()[0]
    lines = [line for line in path.read_text().splitlines() if "function_call_output" not in line]
    path.write_text("\n".join(lines) + "\n")
    async with world(acp=True) as w:
        again, _ = await loaded(w, session)
        assert [call["seen"] for call in again.calls().values()] == [["failed"]]


async def test_an_open_session_is_loaded_again_while_its_turn_runs(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), Hold()), reply(says("new")), acp=True) as w:
        editor, session = await opened(w)
        prompt = await editor.prompt(session, "first words")
        while not w.model.requests:
            await w.client.call("session/list", {})
        await w.client.call("session/load", editor.opening(sessionId=session))
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "cancelled"
        assert editor.text("user_message_chunk") == "first words"
        assert await editor.ends(session, "more") == "end_turn"
        assert w.model.requests[-1].texts() == ["first words", "more"]


async def test_a_session_that_runs_is_deleted(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), Hold()), acp=True) as w:
        editor, session = await opened(w)
        prompt = await editor.prompt(session)
        assert await w.client.call("session/delete", {"sessionId": session}) == {}
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "cancelled"
        assert (await w.client.call("session/list", {}))["sessions"] == []
        again = await w.client.ask("session/load", editor.opening(sessionId=session))
        assert again["error"]["code"] == -32002


# --- logging in
@pytest.fixture
def issuer() -> Iterator[ScriptedIssuer]:
    with scripted_issuer() as running:
        yield running


async def test_a_session_is_refused_until_the_browser_login_is_done(
    world: MakeWorld, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []

    def open_browser(url: str) -> bool:
        urls.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_browser)
    environment = {"APP_SERVER_AUTH_ISSUER": issuer.url}
    async with world(reply(says("ok")), provider=NEEDS_LOGIN, environment=environment, acp=True) as w:
        editor = Editor(w)
        assert [each["id"] for each in (await editor.start())["authMethods"]] == ["chat-gpt", "api-key"]
        for method, more in (("session/new", {}), ("authenticate", {"methodId": "api-key"})):
            error = (await w.client.ask(method, {**editor.opening(), **more}))["error"]
            assert error["code"] == -32000
        given_up = await w.client.send("authenticate", {"methodId": "chat-gpt"})
        while not urls:
            await w.client.call("session/list", {})
        await w.client.tell("$/cancel_request", {"requestId": given_up})
        assert (await w.client.answer_to(given_up))["error"]["code"] == -32800
        login = await w.client.send("authenticate", {"methodId": "chat-gpt"})
        while len(urls) < 2:
            await w.client.call("session/list", {})
        assert await browse(urls[1], code="code-1") == 200
        assert (await w.client.answer_to(login))["result"] == {}
        assert await w.client.call("authenticate", {"methodId": "api-key"}) == {}, "nothing is missing"
        session = await editor.session()
        assert await editor.ends(session) == "end_turn"
        assert await editor.ends(session, "/logout") == "end_turn"
        assert (await w.client.ask("session/new", editor.opening()))["error"]["code"] == -32000
        refused = await w.client.ask("session/load", editor.opening(sessionId=session))
        assert refused["error"]["code"] == -32000


async def test_a_key_of_the_environment_is_a_login(world: MakeWorld) -> None:
    environment = {"OPENAI_API_KEY": "sk-environment-1", "NO_BROWSER": "1"}
    async with world(reply(says("ok")), provider=NEEDS_LOGIN, environment=environment, acp=True) as w:
        editor = Editor(w)
        assert [each["id"] for each in (await editor.start())["authMethods"]] == ["api-key"]
        assert await w.client.call("authenticate", {"methodId": "api-key"}) == {}
        refused = await w.client.ask("authenticate", {"methodId": "chat-gpt"})
        assert refused["error"]["code"] == -32602, "there is no browser"
        assert await editor.ends(await editor.session()) == "end_turn"
        assert w.model.requests[0].headers["authorization"] == "Bearer sk-environment-1"


async def test_folders_beside_the_working_directory_do_not_come_back_by_themselves(world: MakeWorld) -> None:
    config = {"approval_policy": "never", "sandbox_mode": "workspace-write"}
    first, second, third = (script(f"echo > ../beside/{n}") for n in (1, 2, 3))
    no_tmp = "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true"
    async with world(reply(first), reply(says("done")), config=config, tables=no_tmp, acp=True) as w:
        beside = w.root / "beside"
        beside.mkdir()
        editor, session = await opened(w, additionalDirectories=[str(beside)])
        await editor.ends(session)
        w.model.replies += [reply(second), reply(says("done")), reply(third), reply(says("done"))]
        await w.client.call("session/load", editor.opening(sessionId=session))
        await editor.ends(session)
        again = editor.opening(sessionId=session, additionalDirectories=[str(beside)])
        await w.client.call("session/resume", again)
        await editor.ends(session)
        # The placeholders of missing directories, such as `.git`, stay for a moment after a command.
        assert sorted(path.name for path in beside.iterdir() if path.is_file()) == ["1", "3"]
