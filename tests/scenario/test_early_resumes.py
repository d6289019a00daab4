"""A stored conversation that is resumed before the server is loaded is shown as the server shows it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import pytest

from app_server.core.lazy import Lazy
from app_server.core.rollout.disk import open_for_reading
from app_server.core.rollout.locks import lock_rollout
from app_server.core.rollout.rollout_names import journal_path
from app_server.identity import EarlyInitialize
from app_server.startup import early_resumes
from app_server.startup.early_answers import EarlyAnswer, SpokenApi
from app_server.startup.early_responders import early_responders
from app_server.startup.launch import Launch
from protocol.base import Json
from protocol.jsonrpc import Request
from tests.support.scripted_model import reply, says, script
from tests.support.thread_client import ended, notified, say, start, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.anyio

BOTH = ("resumeConversation", "thread/resume")
AGENTS = {"AGENTS.md": "Run the tests."}


def resume_early(
    w: World, method: str, params: Json, capabilities: Json = None, **launch: Json
) -> EarlyAnswer | None:
    at = Launch(home=w.home, cwd=w.workspace, environment=w.environment, **launch)
    client = EarlyInitialize("tests", "1", capabilities)
    return early_responders(at, SpokenApi(), Lazy(object))(client)(Request(7, method, params))


def answered(answer: EarlyAnswer | None) -> tuple[Json, list[Json]]:
    """The result, and the notifications before it. Releases the file, as the server does."""
    assert answer is not None
    assert answer.begun is not None
    answer.begun.release()
    assert answer.begun.notified >= {json.loads(line)["method"] for line in answer.before}
    return json.loads(answer.response)["result"], [json.loads(line) for line in answer.before]


def without_time(notification: Json) -> Json:
    return {key: value for key, value in notification.items() if key != "emittedAtMs"}


async def stored(world: MakeWorld, method: str, config: Mapping[str, Json], **params: Json) -> str:
    """A conversation with a command and two turns."""
    replies = (reply(script("echo one")), reply(says("done", "m1")), reply(says("and again", "m2")))
    async with world(*replies, config=config, files=AGENTS, git=True) as w:
        if method == "thread/resume":
            id = await start(w.client, **params)
            await say(w.client, id, "first")
            await say(w.client, id, "second")
        else:
            id = await w.open(**params)
            for text in ("first", "second"):
                await w.client.turn(id, text)
    return id


def named(method: str, id: str) -> Json:
    return {"threadId": id} if method == "thread/resume" else {"conversationId": id}


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize(
    ("config", "params", "more"),
    [
        ({}, {}, {}),
        ({"sandbox_mode": "read-only", "model_reasoning_effort": "high"}, {"model": "other"}, {}),
        ({"approval_policy": "on-failure"}, {}, {"model": "another", "cwd": "sub"}),
        (
            {"sandbox_mode": "workspace-write", "sandbox_workspace_write": {"network_access": True}},
            {"sandbox": "workspace-write"},
            {"approvalPolicy": "on-request", "config": {"model_reasoning_effort": "low"}},
        ),
    ],
)
async def test_the_answer_is_that_of_the_server(
    world: MakeWorld, method: str, config: Mapping[str, Json], params: Json, more: Json
) -> None:
    id = await stored(world, method, config, **params)
    async with world(config=config) as w:
        request = {**named(method, id), **(more if method == "thread/resume" else {"overrides": more})}
        early, before = answered(resume_early(w, method, request))
        since = len(w.client.received())
        served = await w.client.call(method, request)
        assert early == served
        assert json.dumps(early) == json.dumps(served)  # also in the order of the fields
        notified = [m for m in w.client.received()[since:] if "method" in m and "id" not in m]
        assert [without_time(m) for m in before] == [without_time(m) for m in notified[: len(before)]]
        assert len(before) == 1


async def test_a_path_names_a_conversation_as_well(world: MakeWorld) -> None:
    await stored(world, "resumeConversation", {})
    async with world() as w:
        [path] = w.rollouts()
        early, _ = answered(resume_early(w, "resumeConversation", {"path": str(path)}))
        assert early == await w.client.call("resumeConversation", {"path": str(path)})


async def test_turns_are_left_out_where_they_are_not_wanted(world: MakeWorld) -> None:
    id = await stored(world, "thread/resume", {})
    async with world() as w:
        params = {"threadId": id, "excludeTurns": True}
        early, _ = answered(resume_early(w, "thread/resume", params))
        assert early["thread"]["turns"] == []
        assert early == await w.client.call("thread/resume", params)


async def test_a_notification_that_is_not_wanted_is_not_sent(world: MakeWorld) -> None:
    id = await stored(world, "thread/resume", {})
    async with world() as w:
        unwanted = {"optOutNotificationMethods": ["thread/status/changed"]}
        _, before = answered(resume_early(w, "thread/resume", {"threadId": id}, unwanted))
        assert before == []


async def test_a_name_is_shown(world: MakeWorld) -> None:
    id = await stored(world, "thread/resume", {})
    async with world() as w:
        await w.client.call("thread/name/set", {"threadId": id, "name": "Mine"})
        early, _ = answered(resume_early(w, "thread/resume", {"threadId": id}))
        assert early["thread"]["name"] == "Mine"


UNKNOWN = "01a2029b-0000-7000-8000-00000000dead"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resumeConversation", None),
        ("resumeConversation", {}),
        ("resumeConversation", {"history": []}),
        ("resumeConversation", {"conversationId": UNKNOWN}),
        ("resumeConversation", {"conversationId": "x"}),
        ("resumeConversation", {"path": "nowhere"}),
        ("resumeConversation", {"path": "a\0b"}),
        ("resumeConversation", {"path": 5}),
        ("resumeConversation", {"conversationId": "THE_ID", "overrides": {"sandbox": "none"}}),
        ("resumeConversation", {"conversationId": "THE_ID", "overrides": {"modelProvider": "nobody"}}),
        ("resumeConversation", {"conversationId": "THE_ID", "history": [{"type": "other"}]}),
        ("thread/resume", None),
        ("thread/resume", {"threadId": UNKNOWN}),
        ("thread/resume", {"threadId": "x"}),
        ("thread/resume", {"threadId": "THE_ID", "path": "/x"}),
        ("thread/resume", {"threadId": "THE_ID", "history": []}),
        ("thread/resume", {"threadId": "THE_ID", "permissions": ":workspace"}),
        ("thread/resume", {"threadId": "THE_ID", "modelProvider": "nobody"}),
        ("thread/resume", {"threadId": "THE_ID", "excludeTurns": "yes"}),
    ],
)
async def test_what_needs_a_closer_look_is_left_to_the_server(
    world: MakeWorld, method: str, params: Json
) -> None:
    id = await stored(world, method, {})
    async with world() as w:
        given = params and {key: id if value == "THE_ID" else value for key, value in params.items()}
        assert resume_early(w, method, given) is None
        assert resume_early(w, method, named(method, id)) is not None


@pytest.mark.parametrize("method", BOTH)
async def test_a_conversation_that_is_open_elsewhere_is_left_to_the_server(
    world: MakeWorld, method: str
) -> None:
    id = await stored(world, method, {})
    async with world() as w:
        [path] = w.rollouts()
        first = resume_early(w, method, named(method, id))
        assert first is not None
        assert first.begun is not None
        assert resume_early(w, method, named(method, id)) is None  # the first holds it
        first.begun.release()
        journal_path(path).write_text("something that a crash left")
        assert resume_early(w, method, named(method, id)) is None
        journal_path(path).unlink()
        fd = open_for_reading(path)
        lock = lock_rollout(fd, path)
        assert lock is not None
        assert resume_early(w, method, named(method, id)) is None
        os.close(lock)
        os.close(fd)


@pytest.mark.parametrize("method", BOTH)
async def test_a_long_file_is_left_to_the_server(
    world: MakeWorld, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await stored(world, method, {})
    async with world() as w:
        [path] = w.rollouts()
        monkeypatch.setattr(early_resumes, "MOST_BYTES", path.stat().st_size - 1)
        assert resume_early(w, method, named(method, id)) is None
        monkeypatch.setattr(early_resumes, "MOST_BYTES", path.stat().st_size)
        answered(resume_early(w, method, named(method, id)))


@pytest.mark.parametrize("method", BOTH)
async def test_nothing_is_held_after_a_refusal(world: MakeWorld, method: str) -> None:
    """A file that is not plain is read, and then left to the server, which locks it."""
    id = await stored(world, method, {})
    async with world() as w:
        [path] = w.rollouts()
        sound = path.read_bytes()
        path.write_bytes(sound + b"damaged\n")
        assert resume_early(w, method, named(method, id)) is None
        path.write_bytes(sound)
        await w.client.call(method, named(method, id))


@pytest.mark.parametrize("method", BOTH)
async def test_a_process_goes_on_with_what_it_resumed(world: MakeWorld, method: str) -> None:
    """Whether it was resumed before the server was loaded depends on the machine; the client sees the same."""
    id = await stored(world, method, {})
    async with world(reply(says("hello again", "m3")), transport="process") as w:
        await w.client.call(method, named(method, id))
        if method == "thread/resume":
            turn_id = await turn(w.client, id)
            assert (await ended(w.client, turn_id))["status"] == "completed"
            assert len(notified(w, "thread/tokenUsage/updated")) > 1
            [usage, *_] = notified(w, "thread/tokenUsage/updated")
            assert usage["turnId"] != turn_id
            expected = "thread/status/changed"
        else:
            await w.client.call("addConversationListener", {"conversationId": id})
            assert (await w.client.turn(id)).last_message == "hello again"
            expected = "sessionConfigured"
        before = [m.get("method") for m in w.client.received()[: 3 if method == "thread/resume" else 2]]
        assert before.count(expected) == 1
        assert len(notified(w, "sessionConfigured")) == (method == "resumeConversation")
        [path] = w.rollouts()
        assert [json.loads(line)["type"] for line in path.read_text().splitlines()].count("session_meta") == 1
