"""The common beginning of a thread's requests: it stays unchanged between two compactions, whatever happens."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pytest

from app_server_protocol.encoding import Json
from tests.engine.mcp.test_scenario_mcp import table
from tests.support.claude import StrictClaude, plain, shell, text, thinking
from tests.support.scripted_model import Reply, calls, chat_reply, done, reply, says, script
from tests.support.thread_client import ended, items, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld

pytestmark = pytest.mark.scenario

CLAUDE: Final = "claude-opus-5-5"
CHECKING: Final = "gpt-6.2-sol"
"""Model whose provider checks the input before its thoughts."""


def mode(kind: str, model: str, instructions: str | None = None) -> Json:
    return {"mode": kind, "settings": {"model": model, "developer_instructions": instructions}}


def parts(body: Json) -> tuple[Json, list[Json]]:
    """Return the head of a request, and its messages or items, without cache marks."""
    messages = plain(body.get("messages", body.get("input")))
    head = {name: body.get(name) for name in ("model", "instructions", "system", "tools")}
    return plain(head), messages


def assert_continued(bodies: Sequence[Json]) -> None:
    """Check that every request begins like the one before it, except for its last message."""
    for before, after in pairwise(map(parts, bodies)):
        assert before[0] == after[0]
        assert len(after[1]) >= len(before[1])
        assert after[1][: len(before[1]) - 1] == before[1][:-1]


def chat_call(command: str) -> Json:
    function = {"name": "shell_command", "arguments": f'{{"command": "{command}"}}'}
    return {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}


RESPONSES: Final = [reply(says(each, f"m{n}")) for n, each in enumerate("abcd")]
CHAT: Final = [chat_reply({"content": each}) for each in "abcd"]
WIRES: Final[dict[str, tuple[str, Json, list[Reply]]]] = {
    "responses": (CHECKING, {}, [reply(script("echo hi")), *RESPONSES]),
    "chat": (CHECKING, {"wire_api": "chat"}, [chat_reply(chat_call("echo hi"), finish="tool_calls"), *CHAT]),
    "messages": (CLAUDE, {"wire": "messages"}, []),
}


@pytest.mark.parametrize("wire", WIRES)
async def test_every_request_begins_as_the_one_before_over_a_change_of_the_mode(
    world: MakeWorld, wire: str
) -> None:
    model, provider, replies = WIRES[wire]
    claude = StrictClaude(
        [thinking("One."), shell("echo hi", "t1")],
        *([thinking(f"{n}."), text(each)] for n, each in enumerate("abcd")),
    )
    async with world(*replies, provider=provider, config={"model": model}, capabilities=EXPERIMENTAL) as w:
        w.model.author = claude if wire == "messages" else w.model.author
        thread = await start(w.client)
        changes: list[Json] = [{}, mode("plan", model), {}, mode("default", model)]
        for change in changes:
            over = {"collaborationMode": change} if change else {}
            done = await ended(w.client, await turn(w.client, thread, "on", **over))
            assert done["status"] == "completed", done
        bodies = [request.body for request in w.model.requests]
        assert len(bodies) == 5
        assert_continued(bodies)
        assert "request_user_input" in str(bodies[0]["tools"])
        assert ["# Plan mode" in str(body) for body in bodies] == [False, False, True, True, True]
        assert ["# Default mode" in str(body) for body in bodies] == [False] * 4 + [True]
        assert str(bodies[-1]).count("# Plan mode") == 1
    if wire == "messages":
        assert claude.refusals == []
        kinds = [block["type"] for message in bodies[-1]["messages"] for block in message["content"]]
        assert kinds.count("thinking") == 4, "no thought is forgotten"


async def test_a_thread_that_was_in_plan_mode_keeps_the_tool_that_asks(world: MakeWorld) -> None:
    async with world(*RESPONSES[:3], capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        await say(w.client, thread, collaborationMode=mode("plan", "scripted"))
        await say(w.client, thread, collaborationMode=mode("default", "scripted"))
        offered = [request.tools for request in w.model.requests]
        assert "request_user_input" not in offered[0]
        assert offered[1] == [*offered[0], "request_user_input"] == offered[2]


async def test_instructions_of_a_mode_are_told_again_after_a_compaction_and_not_twice(
    world: MakeWorld,
) -> None:
    replies = [
        *(reply(says("a")), reply(says("SUMMARY")), reply(says("b")), reply(says("c")), reply(says("d"))),
    ]
    async with world(*replies, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await say(w.client, thread, collaborationMode=mode("plan", "scripted", "Be brief."))
        compacting = await w.client.call("thread/compact/start", {"threadId": thread})
        assert compacting == {}
        await w.client.expect(
            lambda m: (
                m.get("method") == "item/completed" and m["params"]["item"]["type"] == "contextCompaction"
            )
        )
        await say(w.client, thread)
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        await w.client.call("thread/resume", {"threadId": thread})
        await say(w.client, thread)
        await say(w.client, thread, collaborationMode=mode("default", "scripted"))
        told = [str(request.body["input"]).count("Be brief.") for request in w.model.requests]
        assert told == [1, 1, 1, 1, 1]
        assert [request.body["instructions"] for request in w.model.requests] == [
            w.model.requests[0].body["instructions"]
        ] * 5
        assert "# Default mode" in str(w.model.requests[-1].body["input"])
        assert items(w, kind="contextCompaction")


async def test_thoughts_are_kept_over_a_review_and_dropped_where_the_tools_have_changed(
    world: MakeWorld,
) -> None:
    """A review has instructions and a history of its own."""
    thought = done({"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "sealed"})
    ask_later = {"features.goals": False}
    replies = [
        *(reply(thought, says("a")), reply(says("nothing found")), reply(says("b")), reply(says("c"))),
    ]
    async with world(*replies, config={"model": CHECKING, **ask_later}) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        target = {"type": "custom", "instructions": "look"}
        review = await w.client.call("review/start", {"threadId": thread, "target": target})
        await ended(w.client, review["turn"]["id"])
        await say(w.client, thread)
        goal = {"threadId": thread, "objective": "rest", "status": "paused"}
        await w.client.call("thread/goal/set", goal)
        await say(w.client, thread)
        sealed = ["sealed" in str(request.body["input"]) for request in w.model.requests]
        assert sealed == [False, False, True, False]
        assert w.model.requests[3].tools[: len(w.model.requests[2].tools)] == w.model.requests[2].tools


async def test_a_tool_is_asked_for_in_vain_outside_of_plan_mode_also_where_it_is_offered(
    world: MakeWorld,
) -> None:
    question = {"id": "q", "header": "Q", "question": "?", "options": [{"label": "a", "description": "b"}]}
    ask = calls("request_user_input", {"questions": [question]}, "q1")
    async with world(reply(ask), reply(says("ok")), config={"model": CHECKING}) as w:
        await say(w.client, await start(w.client))
        assert "unavailable in Default mode" in w.model.requests[1].outputs()["q1"]


async def test_tools_of_a_server_that_comes_late_are_behind_the_others(world: MakeWorld) -> None:
    async with world(*RESPONSES[:3], tables=table("zed")) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        path = w.home / "config.toml"
        path.write_text(path.read_text() + table("added"))
        await w.client.call("config/mcpServer/reload")
        await say(w.client, thread)
        path.write_text(path.read_text().replace(table("zed"), ""))
        await w.client.call("config/mcpServer/reload")
        await say(w.client, thread)
        first, second, third = (request.tools for request in w.model.requests)
        late = [name for name in second if name.startswith("mcp__added__")]
        assert late
        assert second == [*first, *late]
        assert third == [name for name in second if not name.startswith("mcp__zed__")]
