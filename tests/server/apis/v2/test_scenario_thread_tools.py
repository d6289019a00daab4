"""Requests of a thread to its client besides approvals: calls of the client's tools, questions of the model;
and plans.
"""

from typing import Any

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.pictures import PNG, picture_url
from tests.support.scripted_model import begins_to_say, calls, patches, reply, says, word
from tests.support.thread_client import ended, items, notified, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

TOOL: Json = {
    "type": "function",
    "name": "lookup",
    "description": "Looks a ticket up.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
}
PICTURE = picture_url(PNG)
TOOL_CALL, USER_INPUT = "item/tool/call", "item/tool/requestUserInput"
CALL = calls("lookup", {"id": "7"}, "d1")
PLAN_MODE: Json = {"mode": "plan", "settings": {"model": "scripted"}}
DEFAULT_MODE: Json = {"mode": "default", "settings": {"model": "scripted"}}
COLOUR: Json = {
    "id": "colour",
    "header": "Colour",
    "question": "Which colour?",
    "options": [{"label": "Red", "description": "Fire."}, {"label": "Blue", "description": "Sea."}],
}
ASK = calls("request_user_input", {"questions": [COLOUR]}, "q1")


def text(content: str) -> Json:
    return {"type": "inputText", "text": content}


async def planning(w: World, thread: str, mode: Json = PLAN_MODE) -> str:
    return await turn(w.client, thread, "plan", collaborationMode=mode)


def results(w: World) -> list[Any]:
    """Return the outputs of the model's calls in the last request."""
    return [item["output"] for item in w.model.requests[-1].body["input"] if item["type"].endswith("_output")]


async def test_the_client_runs_its_tool_and_the_model_gets_what_came_of_it(world: MakeWorld) -> None:
    async with world(reply(CALL), reply(says("open")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, dynamicTools=[TOOL])
        id = await turn(w.client, thread)
        called = await w.client.expect(TOOL_CALL)
        expected = {"threadId": thread, "turnId": id, "callId": "d1", "namespace": None}
        assert called["params"] == {**expected, "tool": "lookup", "arguments": {"id": "7"}}
        content = [text("Ticket 7 is open."), {"type": "inputImage", "imageUrl": PICTURE}]
        await w.client.answer(called, {"success": True, "contentItems": content})
        assert (await ended(w.client, id))["status"] == "completed"
        [item] = items(w, kind="dynamicToolCall")
        assert (item["status"], item["success"], item["contentItems"]) == ("completed", True, content)
        assert results(w) == [
            [
                {"type": "input_text", "text": "Ticket 7 is open."},
                {"type": "input_image", "image_url": PICTURE},
            ]
        ]
        listed = await w.client.call("thread/items/list", {"threadId": thread})
        assert [entry["item"] for entry in listed["data"]][1] == item
    assert not notified(w, "serverRequest/resolved")


@pytest.mark.parametrize(
    "answer",
    [
        *(
            {},
            None,
            [],
            {"success": True},
            {"success": "yes", "contentItems": []},
            {"contentItems": [text("x")]},
        ),
        *({"success": True, "contentItems": [5]}, {"success": True, "contentItems": {"type": "inputText"}}),
        {"success": False, "contentItems": [text("no such ticket")]},
    ],
)
async def test_any_other_answer_fails_the_call_and_the_turn_goes_on(world: MakeWorld, answer: Json) -> None:
    async with world(reply(CALL), reply(says("never mind")), capabilities=EXPERIMENTAL) as w:
        id = await turn(w.client, await start(w.client, dynamicTools=[TOOL]))
        await w.client.answer(await w.client.expect(TOOL_CALL), answer)
        assert (await ended(w.client, id))["status"] == "completed"
        [item] = items(w, kind="dynamicToolCall")
        assert (item["status"], item["success"]) == ("failed", False)


async def test_an_interrupt_ends_the_call_as_failed_and_a_late_answer_is_ignored(world: MakeWorld) -> None:
    async with world(reply(CALL), reply(says("next")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, dynamicTools=[TOOL])
        id = await turn(w.client, thread)
        called = await w.client.expect(TOOL_CALL)
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        assert [item["status"] for item in items(w, kind="dynamicToolCall")] == ["failed"]
        await w.client.answer(called, {"success": True, "contentItems": [text("arrived-afterwards")]})
        assert (await ended(w.client, await turn(w.client, thread)))["status"] == "completed"
        assert "arrived-afterwards" not in str(w.model.requests[-1].body)


async def test_tools_are_kept_where_a_thread_goes_on(world: MakeWorld) -> None:
    async with world(
        reply(says("a")), reply(CALL), reply(says("b", "msg-2")), capabilities=EXPERIMENTAL
    ) as w:
        thread = await start(
            w.client, dynamicTools=[{**TOOL, "type": "namespace", "name": "kit", "tools": [TOOL]}]
        )
        await ended(w.client, await turn(w.client, thread))
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        await w.client.call("thread/resume", {"threadId": thread})
        id = await turn(w.client, thread)
        await w.client.answer(await w.client.expect(TOOL_CALL), {"success": True, "contentItems": []})
        await ended(w.client, id)
        names = [[tool.get("name") for tool in request.body["tools"]] for request in w.model.requests]
        assert all(each[-1] == "kit__lookup" for each in names)


@pytest.mark.parametrize("answer", [{"error": None}, {}, {"params": {"success": True, "contentItems": []}}])
async def test_an_answer_with_neither_result_nor_error_is_a_refusal(world: MakeWorld, answer: Json) -> None:
    async with world(reply(CALL), reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, dynamicTools=[TOOL])
        id = await turn(w.client, thread)
        called = await w.client.expect(TOOL_CALL)
        await w.client.write({"id": called["id"], **answer})
        assert (await ended(w.client, id))["status"] == "completed"
        assert results(w) == ["the client did not run the tool"]


@pytest.mark.parametrize(
    "wrong",
    [{"name": "has spaces"}, {"name": "shell"}, {"inputSchema": 5}, {"inputSchema": {"title": "\ud800"}}],
)
async def test_a_tool_that_cannot_be_offered_is_refused(world: MakeWorld, wrong: Json) -> None:
    async with world(capabilities=EXPERIMENTAL) as w:
        with pytest.raises(Refused, match="dynamic tool"):
            await w.client.call("thread/start", {"dynamicTools": [{**TOOL, **wrong}]})
        assert not w.rollouts()


# --- questions of the model
async def test_the_model_asks_the_user(world: MakeWorld) -> None:
    async with world(reply(ASK), reply(says("Blue it is.")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        id = await planning(w, thread)
        asked = await w.client.expect(USER_INPUT)
        assert asked["params"]["questions"] == [{**COLOUR, "isOther": True, "isSecret": False}]
        waiting = await w.client.call("thread/read", {"threadId": thread})
        assert waiting["thread"]["status"] == {"type": "active", "activeFlags": ["waitingOnUserInput"]}
        await w.client.answer(
            asked, {"answers": {"colour": {"answers": ["Blue"]}, "other": {"answers": ["x"]}}}
        )
        await ended(w.client, id)
        assert results(w) == ['{"answers":{"colour":{"answers":["Blue"]}}}']
        resolved = notified(w, "serverRequest/resolved")
        assert resolved == [{"threadId": thread, "requestId": asked["id"]}]


@pytest.mark.parametrize(
    "answer",
    [{}, None, {"answers": []}, {"answers": {"colour": ["Blue"]}}, {"answers": {"colour": {"answers": [5]}}}],
)
async def test_what_is_no_answer_is_told_as_none(world: MakeWorld, answer: Json) -> None:
    async with world(reply(ASK), reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        id = await planning(w, await start(w.client))
        await w.client.answer(await w.client.expect(USER_INPUT), answer)
        assert (await ended(w.client, id))["status"] == "completed"
        assert results(w) == ['{"answers":{}}']


async def test_outside_of_plan_mode_the_user_is_not_asked(world: MakeWorld) -> None:
    async with world(reply(ASK), reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        await ended(w.client, await turn(w.client, await start(w.client)))
        assert results(w) == ["request_user_input is unavailable in Default mode"]


async def test_a_feature_lets_the_model_ask_outside_of_plan_mode(world: MakeWorld) -> None:
    async with world(reply(ASK), reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, config={"features.default_mode_request_user_input": True})
        id = await turn(w.client, thread)
        await w.client.answer(
            await w.client.expect(USER_INPUT), {"answers": {"colour": {"answers": ["Blue"]}}}
        )
        await ended(w.client, id)
        assert results(w) == ['{"answers":{"colour":{"answers":["Blue"]}}}']
        assert "request_user_input" in w.model.requests[0].tools


# --- plans
INTRO = "Intro\n<proposed_plan>\n# Plan\n- one\n</proposed_plan>\nOutro"


def deltas(w: World) -> list[tuple[str, str]]:
    """Return the deltas; neighbours of one item are joined."""
    joined: list[tuple[str, str]] = []
    for m in w.client.received():
        kind = m.get("method", "")
        if kind in ("item/agentMessage/delta", "item/plan/delta"):
            delta = m["params"]["delta"]
            if joined and joined[-1][0] == kind:
                joined[-1] = (kind, joined[-1][1] + delta)
            else:
                joined.append((kind, delta))
    return joined


async def test_a_proposed_plan_is_an_item_of_its_own(world: MakeWorld) -> None:
    pieces = [word(INTRO[n : n + 7]) for n in range(0, len(INTRO), 7)]
    async with world(reply(begins_to_say(), *pieces, says(INTRO)), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        id = await planning(w, thread)
        done = await ended(w.client, id)
        [plan] = items(w, kind="plan")
        assert (plan["id"], plan["text"]) == (f"{id}-plan", "# Plan\n- one\n")
        [message] = items(w, kind="agentMessage")
        assert message["text"] == "Intro\nOutro" == done["items"][0]["text"]
        assert deltas(w) == [
            ("item/agentMessage/delta", "Intro\n"),
            ("item/plan/delta", "# Plan\n- one\n"),
            ("item/agentMessage/delta", "Outro"),
        ]
        listed = await w.client.call("thread/items/list", {"threadId": thread})
        assert [entry["item"]["type"] for entry in listed["data"]] == ["userMessage", "plan", "agentMessage"]
        [told] = [item for item in w.model.requests[0].body["input"] if item["role"] == "developer"]
        assert "Plan mode" in told["content"][0]["text"]
        assert "Plan mode" not in w.model.requests[0].body["instructions"]


async def test_a_message_that_is_nothing_but_a_plan_is_no_message(world: MakeWorld) -> None:
    plan = "<proposed_plan>\nx\n</proposed_plan>\n"
    async with world(reply(says(plan)), capabilities=EXPERIMENTAL) as w:
        done = await ended(w.client, await planning(w, await start(w.client)))
        assert [item["text"] for item in items(w, kind="plan")] == ["x\n"]
        assert not items(w, kind="agentMessage")
        assert done["itemsView"] == "notLoaded"


async def test_the_mode_holds_until_another_is_named_also_over_a_resume(world: MakeWorld) -> None:
    replies = [reply(says(each, f"msg-{n}")) for n, each in enumerate(("a", "b", INTRO))]
    async with world(*replies, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        own = {"mode": "plan", "settings": {"model": "other", "developer_instructions": "Be brief."}}
        await ended(w.client, await planning(w, thread, own))
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        settings = {"model": "other", "reasoning_effort": None, "developer_instructions": "Be brief."}
        assert resumed["collaborationMode"] == {"mode": "plan", "settings": settings}
        await ended(w.client, await turn(w.client, thread))
        await ended(w.client, await planning(w, thread, DEFAULT_MODE))
        told = [str(request.body["input"]).count("Be brief.") for request in w.model.requests]
        assert told == [1, 1, 1]
        ended_mode = ["# Default mode" in str(request.body["input"]) for request in w.model.requests]
        assert ended_mode == [False, False, True]
        assert [request.body["model"] for request in w.model.requests] == ["other", "other", "scripted"]
        assert not items(w, kind="plan")
        assert items(w, kind="agentMessage")[-1]["text"] == INTRO


async def test_no_patch_is_applied_in_plan_mode(world: MakeWorld) -> None:
    patch = patches("*** Begin Patch\n*** Add File: a\n+x\n*** End Patch")
    async with world(
        reply(patch), reply(says("ok")), capabilities=EXPERIMENTAL, config={"model": "gpt-5-codex"}
    ) as w:
        mode = {"mode": "plan", "settings": {"model": "gpt-5-codex"}}
        await ended(w.client, await planning(w, await start(w.client), mode))
        assert not (w.workspace / "a").exists()
        assert "plan mode" in str(results(w))
