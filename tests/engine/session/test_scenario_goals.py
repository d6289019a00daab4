"""Goals over the thread API: turns that begin by themselves, and every way to end them."""

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import Hold, begins_to_say, calls, failure, reply, says, script, word
from tests.support.thread_client import say, start, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


async def put(w: World, thread: str, **goal: Json) -> Json:
    return (await w.client.call("thread/goal/set", {"threadId": thread, **goal}))["goal"]


async def get(w: World, thread: str) -> Json:
    return (await w.client.call("thread/goal/get", {"threadId": thread}))["goal"]


async def goal_is(w: World, status: str) -> None:
    await w.client.expect(
        lambda m: m.get("method") == "thread/goal/updated" and m["params"]["goal"]["status"] == status
    )


def methods(w: World) -> list[str]:
    named = ("thread/goal/updated", "thread/goal/cleared", "turn/started", "turn/completed", "item/completed")
    return [m["method"] for m in w.client.received() if m.get("method") in named]


def tools(w: World) -> set[str]:
    return {tool.get("name", "") for tool in w.model.requests[-1].body["tools"]}


COMPLETE = calls("update_goal", {"status": "complete"})


async def test_turns_begin_by_themselves_until_the_goal_is_complete(world: MakeWorld) -> None:
    replies = reply(says("working")), reply(COMPLETE), reply(says("done"))
    async with world(*replies) as w:
        thread = await start(w.client)
        goal = await put(w, thread, objective=" write a poem ", tokenBudget=1000)
        assert (goal["objective"], goal["status"], goal["tokenBudget"]) == ("write a poem", "active", 1000)
        await w.client.expect("turn/completed")
        await w.client.expect("turn/completed")
        done = await get(w, thread)
        assert done["status"] == "complete"
        assert 0 < done["tokensUsed"] < 1000
        assert {"get_goal", "create_goal", "update_goal"} <= tools(w)
        told = str(w.model.requests[0].body["input"][-1])
        assert "write a poem" in told
        turns = (await w.client.call("thread/turns/list", {"threadId": thread, "itemsView": "full"}))["data"]
        kinds = [[item["type"] for item in each["items"]] for each in turns]
        assert kinds == [["agentMessage"], ["agentMessage"]], "nobody said anything"
        assert methods(w)[:3] == ["thread/goal/updated", "turn/started", "item/completed"]
        assert len(w.model.requests) == 3


async def test_a_spent_budget_ends_the_turns(world: MakeWorld) -> None:
    replies = reply(says("a")), reply(script("true")), reply(says("b"))
    async with world(*replies) as w:
        thread = await start(w.client)
        await put(w, thread, objective="long", tokenBudget=1)
        await goal_is(w, "budgetLimited")
        await w.client.expect("turn/completed")
        assert len(w.model.requests) == 1
        await put(w, thread, tokenBudget=2, status="active")
        assert (await get(w, thread))["status"] == "budgetLimited"
        await put(w, thread, tokenBudget=(await get(w, thread))["tokensUsed"] + 1, status="active")
        await w.client.expect("turn/completed")
        assert "is used up" in str(w.model.requests[-1].body["input"][-1]), "told in the turn that goes on"
        assert len(w.model.requests) == 3


async def test_an_interrupt_ends_the_turns_until_the_user_says_something(world: MakeWorld) -> None:
    hold = Hold()
    held = reply(begins_to_say(), word("a"), hold, says("a b"))
    async with world(held, reply(says("words")), reply(COMPLETE), reply(says("done"))) as w:
        thread = await start(w.client)
        await put(w, thread, objective="x")
        await w.client.expect("item/agentMessage/delta")
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": ""})
        await w.client.expect("turn/completed")
        hold.release()
        assert (await get(w, thread))["status"] == "active"
        assert (await w.client.call("thread/read", {"threadId": thread}))["thread"]["status"] == {
            "type": "idle"
        }
        await say(w.client, thread)
        await goal_is(w, "complete")
        await w.client.expect("turn/completed")


async def test_a_failed_turn_blocks_the_goal(world: MakeWorld) -> None:
    async with world(failure(400, {"error": {"message": "bad"}})) as w:
        thread = await start(w.client)
        await put(w, thread, objective="x")
        await goal_is(w, "blocked")
        ended = await w.client.expect("turn/completed")
        assert ended["params"]["turn"]["status"] == "failed"
        assert len(w.model.requests) == 1


async def test_words_of_the_user_join_the_turn_of_the_goal(world: MakeWorld) -> None:
    hold = Hold()
    held = reply(begins_to_say(), word("a"), hold, says("a b"))
    async with world(held, reply(COMPLETE), reply(says("done"))) as w:
        thread = await start(w.client)
        await put(w, thread, objective="x")
        started = await w.client.expect("turn/started")
        await w.client.expect("item/agentMessage/delta")
        assert await turn(w.client, thread, "and this") == started["params"]["turn"]["id"]
        hold.release()
        await w.client.expect("turn/completed")
        assert "and this" in str(w.model.requests[1].body["input"])


async def test_a_goal_that_is_set_in_a_turn_waits_for_its_end(world: MakeWorld) -> None:
    hold = Hold()
    held = reply(begins_to_say(), word("a"), hold, says("a b"))
    async with world(held, reply(COMPLETE), reply(says("done"))) as w:
        thread = await start(w.client)
        await turn(w.client, thread)
        await w.client.expect("item/agentMessage/delta")
        await put(w, thread, objective="x")
        hold.release()
        await w.client.expect("turn/completed")
        await goal_is(w, "complete")
        await w.client.expect("turn/completed")


async def test_a_stored_goal_waits_for_a_turn_that_somebody_asks_for(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("a b"))) as w:
        thread = await start(w.client)
        await put(w, thread, objective="x", tokenBudget=10_000)
        await w.client.expect("item/agentMessage/delta")
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": ""})
        await w.client.expect("turn/completed")
        hold.release()
    async with world(reply(says("words")), reply(COMPLETE), reply(says("done"))) as w:
        stored = await get(w, thread)
        assert (stored["objective"], stored["status"], stored["tokenBudget"]) == ("x", "active", 10_000)
        await w.client.call("thread/resume", {"threadId": thread})
        await goal_is(w, "active")
        assert await get(w, thread) == stored
        assert w.model.requests == []
        await say(w.client, thread)
        await goal_is(w, "complete")
        await w.client.expect("turn/completed")
        assert len(w.model.requests) == 3


async def test_an_ephemeral_thread_has_none(world: MakeWorld) -> None:
    """No other process could end the goal, and it would be lost with this one."""
    made = calls("create_goal", {"objective": "the model's"})
    async with world(reply(made), reply(says("as you wish"))) as w:
        thread = await start(w.client, ephemeral=True)
        for method, more in (("set", {"objective": "x"}), ("get", {}), ("clear", {})):
            with pytest.raises(Refused, match=f"ephemeral thread does not support goals: {thread}"):
                await w.client.call(f"thread/goal/{method}", {"threadId": thread, **more})
        await say(w.client, thread)
        assert not tools(w) & {"get_goal", "create_goal", "update_goal"}
        assert "unsupported call" in w.model.requests[-1].outputs()["c1"]
    assert len(w.model.requests) == 2
    assert "thread/goal/updated" not in methods(w)


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_fork_has_no_goal_of_its_own(world: MakeWorld, ephemeral: bool) -> None:
    async with world(reply(says("one")), reply(says("in the fork"))) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        await put(w, thread, objective="x", status="paused")
        copy = {"threadId": thread, "ephemeral": ephemeral, "excludeTurns": True}
        forked = (await w.client.call("thread/fork", copy))["thread"]["id"]
        await say(w.client, forked)
        if not ephemeral:
            assert await get(w, forked) is None
        assert (await get(w, thread))["status"] == "paused"
    if not ephemeral:
        async with world() as w:
            assert await get(w, forked) is None, "nor is it stored with one"
            assert (await get(w, thread))["objective"] == "x"


async def test_clearing_ends_it(world: MakeWorld) -> None:
    async with world(reply(says("one"))) as w:
        thread = await start(w.client)
        assert await w.client.call("thread/goal/clear", {"threadId": thread}) == {"cleared": False}
        await put(w, thread, objective="x", status="paused")
        assert await w.client.call("thread/goal/clear", {"threadId": thread}) == {"cleared": True}
        await w.client.expect("thread/goal/cleared")
        assert await get(w, thread) is None
        await say(w.client, thread)
    async with world() as w:
        assert await get(w, thread) is None


async def test_the_model_may_set_one_where_there_is_none(world: MakeWorld) -> None:
    made = calls("create_goal", {"objective": "the model's", "token_budget": 100_000})
    replies = (
        reply(made),
        reply(says("set")),
        reply(calls("get_goal", {}, "c2"), COMPLETE),
        reply(says("done")),
    )
    async with world(*replies, config={"features": {"goals": True}}) as w:
        thread = await start(w.client)
        await say(w.client, thread, "make it a goal")
        await goal_is(w, "complete")
        await w.client.expect("turn/completed")
        found = await get(w, thread)
        assert (found["objective"], found["tokenBudget"]) == ("the model's", 100_000)


async def test_conversations_of_the_other_api_have_no_goals(world: MakeWorld) -> None:
    async with world(reply(says("one"))) as w:
        conversation = await w.open()
        await put(w, conversation, objective="x", status="paused")
        await w.client.turn(conversation)
        assert not {"get_goal", "create_goal", "update_goal"} & tools(w)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "cannot update goal for thread .*: no goal exists"),
        ({"status": "active"}, "no goal exists"),
        ({"objective": " "}, "goal objective must not be empty"),
        ({"objective": "x" * 4001}, "at most 4000 characters"),
        ({"objective": "x", "tokenBudget": 0}, "goal budgets must be positive when provided"),
        ({"objective": "x", "status": "bogus"}, "usageLimited"),
    ],
)
async def test_what_is_no_goal_is_refused(world: MakeWorld, params: Json, text: str) -> None:
    async with world() as w:
        thread = await start(w.client)
        with pytest.raises(Refused, match=text):
            await put(w, thread, **params)
        assert await get(w, thread) is None
        with pytest.raises(Refused, match="thread not found"):
            await put(w, "01a1b2c3-0000-7000-8000-000000000000", objective="x")
        with pytest.raises(Refused, match="thread not found"):
            await get(w, "01a1b2c3-0000-7000-8000-000000000000")
