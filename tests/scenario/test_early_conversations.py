"""A conversation that is begun before the server is loaded is the one that the server would have begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest

from app_server.identity import EarlyInitialize
from app_server.startup.early_answers import EarlyAnswer
from app_server.startup.early_conversations import EarlyConversations
from app_server.startup.early_openings import planned_conversation, planned_thread
from app_server.startup.launch import Launch
from protocol.base import Json
from protocol.ids import ConversationId
from protocol.jsonrpc import Request
from tests.support.scripted_model import reply, says
from tests.support.thread_client import ended, start, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.anyio

ID = ConversationId("01a2029b-0000-7000-8000-000000000001")
PLANS = {"newConversation": planned_conversation, "thread/start": planned_thread}
BOTH = tuple(PLANS)
WORKSPACE_WRITE: Json = {"writable_roots": ["/srv/data"], "network_access": True, "exclude_slash_tmp": True}


def begin(w: World, method: str, params: Json, **launch: Json) -> EarlyAnswer | None:
    at = Launch(home=w.home, cwd=w.workspace, environment=w.environment, **launch)
    early = EarlyConversations(
        plan=lambda request: PLANS[request.method](at, request),
        client=EarlyInitialize("tests", "1"),
        now=lambda: datetime.now().astimezone(),
        new_id=lambda: ID,
    )
    return early.answer(Request(7, method, params))


def first_line(path: str) -> Json:
    with Path(path).open() as lines:
        return json.loads(lines.readline())


def comparable(result: Json, line: Json) -> tuple[Json, Json]:
    """Without what differs between any two conversations: the id, the path, and the time."""
    thread = dict(result.get("thread", {}))
    for field in ("id", "sessionId", "path", "createdAt", "updatedAt", "recencyAt"):
        thread.pop(field, None)
    result = {key: value for key, value in result.items() if key not in ("conversationId", "rolloutPath")}
    payload = {key: value for key, value in line["payload"].items() if key not in ("id", "timestamp")}
    return {**result, "thread": thread}, list({**line, "timestamp": "", "payload": payload}.items())


def path_of(result: Json) -> str:
    path: str = result["rolloutPath"] if "rolloutPath" in result else result["thread"]["path"]
    return path


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize(
    ("config", "params"),
    [
        ({}, None),
        ({}, {"cwd": None, "model": None, "config": None, "sandbox": None, "approvalPolicy": None}),
        ({"sandbox_mode": "read-only", "model_reasoning_effort": "high"}, {"cwd": "sub"}),
        ({"sandbox_mode": "workspace-write", "sandbox_workspace_write": WORKSPACE_WRITE}, {"model": "other"}),
        (
            {"project_doc_max_bytes": 5},
            {"sandbox": "workspace-write", "approvalPolicy": "on-request", "cwd": "/nowhere/ü"},
        ),
        (
            {},
            {
                "config": {"model_reasoning_effort": "low", "model_providers.scripted.name": "x"},
                "modelProvider": "scripted",
                "baseInstructions": "Be brief.",
                "developerInstructions": "Test.",
            },
        ),
    ],
)
async def test_the_answer_and_the_first_line_are_those_of_the_server(
    world: MakeWorld, method: str, config: Mapping[str, Json], params: Json
) -> None:
    files = {"AGENTS.md": "Run the tests.", "sub/AGENTS.md": "And lint."}
    async with world(config=config, files=files, git=True) as w:
        w.write({"AGENTS.md": "Be kind."}, under=w.home)
        w.git("remote", "add", "origin", "https://user:token@example.com/x.git")
        early = begin(w, method, params)
        assert early is not None
        assert early.begun is not None
        assert early.begun.conversation is not None
        assert early.begun.request == Request(7, method, params)
        assert early.begun.conversation.id == ID
        begun = json.loads(early.response)
        assert begun["id"] == 7
        path = path_of(begun["result"])
        served = await w.client.call(method, params)
        assert comparable(begun["result"], first_line(path)) == comparable(
            served, first_line(path_of(served))
        )
        assert list(begun["result"]) == list(served)
        assert Path(path).parent == Path(path_of(served)).parent
        assert Path(path).stat().st_mode & 0o777 == 0o600
        Path(path).unlink()


@pytest.mark.parametrize(
    ("method", "params"),
    [
        *((method, {"cwd": 5}) for method in BOTH),
        *((method, {"cwd": "a\0b"}) for method in BOTH),
        *((method, {"baseInstructions": "\ud83d"}) for method in BOTH),
        *((method, {"approvalPolicy": "sometimes"}) for method in BOTH),
        *((method, {"sandbox": {"mode": "read-only"}}) for method in BOTH),
        *((method, {"config": ["model"]}) for method in BOTH),
        *((method, {"config": {"model_reasoning_effort": 5}}) for method in BOTH),
        *((method, {"modelProvider": "nobody"}) for method in BOTH),
        *((method, ["cwd"]) for method in BOTH),
        *((method, {"unknown": None}) for method in BOTH),
        ("thread/start", {"ephemeral": True}),
        ("thread/start", {"dynamicTools": []}),
        ("newConversation", {"profile": "none"}),
    ],
)
async def test_what_needs_a_closer_look_is_left_to_the_server(
    world: MakeWorld, method: str, params: Json
) -> None:
    async with world() as w:
        assert begin(w, method, params) is None
        assert w.rollouts() == []


async def test_a_home_that_cannot_be_written_is_left_to_the_server(world: MakeWorld) -> None:
    async with world() as w:
        (w.home / "sessions").write_text("no folder")
        assert begin(w, "newConversation", {}) is None
        (w.home / "sessions").unlink()


async def test_the_command_line_counts(world: MakeWorld) -> None:
    async with world() as w:
        early = begin(w, "newConversation", {}, settings=(("model", '"theirs"'),), sandbox_mode="read-only")
        assert early is not None
        result = json.loads(early.response)["result"]
        assert result["model"] == "theirs"
        Path(result["rolloutPath"]).unlink()


@pytest.mark.parametrize("method", BOTH)
async def test_a_process_goes_on_with_what_it_began(world: MakeWorld, method: str) -> None:
    """Whether it began before the server was loaded depends on the machine; the client sees the same."""
    async with world(reply(says("hello")), transport="process") as w:
        if method == "thread/start":
            id = await start(w.client, cwd=str(w.workspace))
            await ended(w.client, await turn(w.client, id))
        else:
            id = await w.open()
            assert (await w.client.turn(id)).last_message == "hello"
        [path] = w.rollouts()
        kinds = [json.loads(line)["type"] for line in path.read_text().splitlines()]
        assert kinds.count("session_meta") == 1
        assert id in path.name
