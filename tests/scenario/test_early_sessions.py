"""A session that is begun before the server is loaded is the one that the server would have begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from app_server.core.auth.storage import StoredAuth, Tokens, write_auth
from app_server.core.lazy import Lazy
from app_server.identity import EarlyInitialize
from app_server.startup.early_acp import acp_responder
from app_server.startup.early_answers import EarlyAnswer, SpokenApi
from app_server.startup.early_responders import early_responders
from app_server.startup.launch import Launch
from protocol.base import Json
from protocol.jsonrpc import Request
from tests.support.editor import Editor
from tests.support.scripted_model import reply, says
from tests.support.world import MakeWorld, World
from tests.unit.auth.oauth_issuer import jwt

pytestmark = pytest.mark.anyio

NEEDS_LOGIN: Json = {"requires_openai_auth": True}
WORKSPACE_WRITE: Json = {"writable_roots": ["/srv/data"], "network_access": True, "exclude_slash_tmp": True}


def launch(w: World, **more: Json) -> Launch:
    return Launch(home=w.home, cwd=w.workspace, environment=w.environment, acp=True, **more)


def begin(w: World, params: Json, **more: Json) -> EarlyAnswer | None:
    answer = early_responders(launch(w, **more), SpokenApi(), Lazy(object))(EarlyInitialize("tests", "1.0"))
    return answer(Request(7, "session/new", params))


def opening(w: World, **more: Json) -> Json:
    return {"cwd": str(w.workspace), "mcpServers": [], **more}


def stored(w: World, id: str) -> tuple[Path, Json]:
    [path] = [each for each in w.rollouts() if id in each.name]
    with path.open() as lines:
        return path, json.loads(lines.readline())


def comparable(line: Json) -> list[Json]:
    """A first line without what differs between any two sessions."""
    payload = {key: value for key, value in line["payload"].items() if key not in ("id", "timestamp")}
    return list({**line, "timestamp": "", "payload": payload}.items())


@pytest.mark.parametrize(
    ("config", "more"),
    [
        ({}, {}),
        ({"approval_policy": "on-request", "sandbox_mode": "read-only"}, {"_meta": {"a": 1}}),
        (
            {"sandbox_mode": "workspace-write", "sandbox_workspace_write": WORKSPACE_WRITE},
            {"additionalDirectories": ["/srv/more", "/srv/ü"]},
        ),
        ({"model": "gpt-5.1-codex", "model_reasoning_effort": "high"}, {"additionalDirectories": None}),
        ({"model": "gpt-5.1", "model_reasoning_effort": "xhigh"}, {}),
        ({"approval_policy": "never", "sandbox_mode": "danger-full-access"}, {"additionalDirectories": []}),
    ],
)
async def test_the_answer_and_the_first_line_are_those_of_the_server(
    world: MakeWorld, config: Mapping[str, Json], more: Json
) -> None:
    files = {"AGENTS.md": "Run the tests."}
    async with world(config=config, files=files, git=True, acp=True) as w:
        early = begin(w, opening(w, **more))
        assert early is not None
        assert early.begun is not None
        answer = json.loads(early.response)
        assert list(answer) == ["jsonrpc", "id", "result"]
        result = answer["result"]
        path, line = stored(w, result["sessionId"])
        await Editor(w).start()
        served = await w.client.call("session/new", opening(w, **more))
        assert json.dumps({**result, "sessionId": ""}) == json.dumps({**served, "sessionId": ""})
        update = await w.client.expect("session/update")
        told = [json.loads(each) for each in early.notifications]
        assert [list(each) for each in told] == [["jsonrpc", "method", "params"]]
        assert json.dumps(told[0]["params"]["update"]) == json.dumps(update["params"]["update"])
        assert told[0]["params"]["sessionId"] == result["sessionId"]
        assert comparable(line) == comparable(stored(w, served["sessionId"])[1])
        path.unlink()


async def test_prompts_of_the_user_are_left_to_the_server(world: MakeWorld) -> None:
    async with world(acp=True) as w:
        w.write({"prompts/tidy.md": "Tidy up."}, under=w.home)
        assert begin(w, opening(w)) is None


@pytest.mark.parametrize("mode", ["read-only", "agent-full-access", "unknown"])
async def test_the_hosts_mode_counts(world: MakeWorld, mode: str) -> None:
    async with world(environment={"INITIAL_AGENT_MODE": mode}, acp=True) as w:
        early = begin(w, opening(w))
        assert early is not None
        await Editor(w).start()
        served = await w.client.call("session/new", opening(w))
        assert json.loads(early.response)["result"]["modes"] == served["modes"]
        stored(w, json.loads(early.response)["result"]["sessionId"])[0].unlink()


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"cwd": 5},
        {"cwd": "relative"},
        {"cwd": "/no/such/folder"},
        {"cwd": "/a\0b"},
        {"cwd": "/", "mcpServers": [{"name": "x", "command": "true"}]},
        {"cwd": "/", "mcpServers": None},
        {"cwd": "/", "additionalDirectories": ["relative"]},
        {"cwd": "/", "additionalDirectories": [5]},
        {"cwd": "/", "additionalDirectories": "/"},
        {"cwd": "/", "mcp_servers": []},
        {"cwd": "/", "unknown": 1},
    ],
)
async def test_what_needs_a_closer_look_is_left_to_the_server(world: MakeWorld, params: Json) -> None:
    async with world(acp=True) as w:
        assert begin(w, params) is None
        assert w.rollouts() == []


async def test_settings_that_are_wrong_are_left_to_the_server(world: MakeWorld) -> None:
    async with world(acp=True) as w:
        assert begin(w, opening(w), settings=(("sandbox_mode", '"none"'),)) is None
        assert begin(w, opening(w), model="theirs") is not None
        w.rollouts()[0].unlink()


@pytest.mark.parametrize(
    ("auth", "begins"),
    [
        (None, False),
        (StoredAuth(api_key="sk-test"), True),
        (
            StoredAuth(tokens=Tokens(id_token="", access_token=jwt(exp=4_000_000_000), refresh_token="r")),
            True,
        ),
        (
            StoredAuth(tokens=Tokens(id_token="", access_token=jwt(exp=1_000_000_000), refresh_token="r")),
            False,
        ),
    ],
)
async def test_a_session_begins_only_with_a_login_that_needs_no_renewal(
    world: MakeWorld, auth: StoredAuth | None, begins: bool
) -> None:
    async with world(provider=NEEDS_LOGIN, acp=True) as w:
        if auth is not None:
            write_auth(w.home, auth)
        assert (begin(w, opening(w)) is not None) is begins
        for path in w.rollouts():
            path.unlink()


@pytest.mark.parametrize(
    ("text", "settings", "needed"),
    [
        ("", (), True),
        ("broken =", (), False),
        ('model_provider = "mine"\n[model_providers.mine]\nname = "x"\nbase_url = "http://x"', (), False),
        ("", (("model_provider", '"ollama"'),), False),
    ],
)
def test_a_way_to_log_in_is_named_where_the_provider_needs_it(
    tmp_path: Path, text: str, settings: tuple[tuple[str, str], ...], needed: bool
) -> None:
    (tmp_path / "config.toml").write_text(text)
    respond = acp_responder(Launch(home=tmp_path, cwd=tmp_path, environment={}, acp=True, settings=settings))
    answered = respond(Request(1, "initialize", {"protocolVersion": 1}))
    assert answered is not None
    assert bool(json.loads(answered.response)["result"]["authMethods"]) is needed


async def test_a_process_goes_on_with_the_session_that_it_began(world: MakeWorld) -> None:
    async with world(reply(says("hello")), transport="process", acp=True) as w:
        editor = Editor(w)
        await editor.start()
        session = await editor.session()
        assert (await editor.update("available_commands_update"))["availableCommands"]
        assert await editor.ends(session) == "end_turn"
        assert editor.text() == "hello"
        assert len(editor.updates("available_commands_update")) == 1
        path, _ = stored(w, session)
        kinds = [json.loads(line)["type"] for line in path.read_text().splitlines()]
        assert kinds.count("session_meta") == 1
