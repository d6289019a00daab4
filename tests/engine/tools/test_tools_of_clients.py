"""Tools that a client brought, in a thread with several clients: which client has to run them, and the result of a call
that no connected client can run.
"""

import pytest

from app_server.engine.tools.client_tool import NO_ANSWER
from app_server.server.composition import Server
from app_server_protocol.encoding import Json
from tests.server.conversations.test_several_clients import asked, question
from tests.support.client import Client
from tests.support.scripted_model import calls, reply, says
from tests.support.thread_client import ended, heard, join, say, start, turn
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

TOOL: Json = {"name": "lookup", "description": "Looks up.", "inputSchema": {"type": "object"}}
TOOL_CALL = "item/tool/call"
FOUND: Json = {"success": True, "contentItems": [{"type": "inputText", "text": "it is there"}]}
CAN: Json = {"experimentalApi": True}
CALLED = reply(calls("lookup", {}, "d1")), reply(says("found"))


async def run_by(owner: Client, w: World, thread: str) -> None:
    """Run a turn in which that client runs the tool."""
    begun = await turn(w.client, thread)
    await owner.answer(await question(owner, TOOL_CALL), FOUND)
    await ended(w.client, begun)
    assert "it is there" in str(w.model.requests[-1].body)


def waits(server: Server, thread: str) -> bool:
    return bool(server.conversations.get(thread).questions.open)


async def opened_again(w: World, old: Client) -> str:
    """Return a stored thread with a tool. The conversation API opens it again, and cannot call tools."""
    assert w.in_process is not None
    w.in_process.conversations.outlasts_clients = True
    async with w.another(capabilities=CAN) as owner:
        thread = await start(owner, dynamicTools=[TOOL])
        await say(owner, thread)
    await old.call("resumeConversation", {"conversationId": thread})
    await old.call("addConversationListener", {"conversationId": thread})
    return thread


async def say_and_take_back(client: Client, thread: str) -> None:
    reverted_lines = await say(client, thread)
    await client.call("thread/revert", {"threadId": thread, "beforeTurnId": reverted_lines})


async def test_a_tool_is_called_on_the_connection_that_brought_it_and_fails_without_it(
    world: MakeWorld,
) -> None:
    left = (reply(calls("lookup", {}, "d2")), reply(says("lost")))
    later = (reply(calls("lookup", {}, "d3")), reply(says("gone")))
    async with world(*CALLED, *left, *later) as w:
        async with w.another(capabilities=CAN) as owner:
            thread = await start(owner, dynamicTools=[TOOL])
            await join(w.client, thread)
            await run_by(owner, w, thread)
            begun = await turn(w.client, thread)
            await question(owner, TOOL_CALL)
        assert (await ended(w.client, begun))["status"] == "completed"  # the owner left during the call
        await ended(w.client, await turn(w.client, thread))
        assert asked(w.client, TOOL_CALL) == []
        ends = [each["item"] for each in heard(w.client, "item/completed")]
        statuses = [each["status"] for each in ends if each["type"] == "dynamicToolCall"]
        assert statuses == ["completed", "failed", "failed"]


async def test_a_tool_stays_its_owners_when_another_client_takes_the_thread_back(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b")), *CALLED) as w:
        async with w.another(capabilities=CAN) as owner:
            thread = await start(owner, dynamicTools=[TOOL])
            await join(w.client, thread)
            await say(w.client, thread)
            await say_and_take_back(w.client, thread)
            await run_by(owner, w, thread)
        assert asked(w.client, TOOL_CALL) == []


async def test_whoever_opens_a_stored_thread_first_in_words_that_have_tools_runs_them(
    world: MakeWorld,
) -> None:
    async with world(reply(says("a")), *CALLED) as w, w.another(capabilities=CAN) as old:
        thread = await opened_again(w, old)
        async with w.another(capabilities=CAN) as editor:
            await join(editor, thread)
            await join(w.client, thread)
            await run_by(editor, w, thread)
        assert asked(w.client, TOOL_CALL) == asked(old, TOOL_CALL) == []


async def test_a_call_fails_where_only_clients_follow_that_have_no_words_for_it(world: MakeWorld) -> None:
    called = (reply(calls("lookup", {}, "d1")), reply(says("lost")))
    async with world(reply(says("a")), *called) as w, w.another(capabilities=CAN) as old:
        thread = await opened_again(w, old)
        await turn(w.client, thread)
        await old.expect("codex/event/task_complete")
        assert NO_ANSWER in str(w.model.requests[-1].body)


async def test_a_call_fails_where_its_owner_does_not_follow_and_others_do(world: MakeWorld) -> None:
    called = [each for n in "ab" for each in (reply(calls("lookup", {}, n)), reply(says(n)))]
    async with world(*called) as w, w.another(capabilities=CAN) as owner:
        thread = await start(owner, dynamicTools=[TOOL])
        await join(w.client, thread)
        await owner.call("thread/unsubscribe", {"threadId": thread})
        assert (await ended(w.client, await turn(w.client, thread)))["status"] == "completed"
        assert NO_ANSWER in str(w.model.requests[-1].body)
        await join(owner, thread)
        await run_by(owner, w, thread)


async def test_a_call_waits_while_nobody_follows_and_is_put_to_its_owner_or_fails(world: MakeWorld) -> None:
    called = [each for n in "ab" for each in (reply(calls("lookup", {}, n)), reply(says(n)))]
    async with world(*called) as w, w.another(capabilities=CAN) as owner:
        thread = await start(owner, dynamicTools=[TOOL])
        for back in (owner, w.client):
            await owner.call("thread/unsubscribe", {"threadId": thread})
            await turn(owner, thread)
            await until(lambda: w.in_process is not None and waits(w.in_process, thread))
            await join(back, thread)
            if back is owner:
                await owner.answer(await question(owner, TOOL_CALL), FOUND)
            await back.expect("turn/completed")
            last = str(w.model.requests[-1].body)
            assert ("it is there" if back is owner else NO_ANSWER) in last


async def test_who_comes_back_on_another_connection_runs_its_tools_again(world: MakeWorld) -> None:
    called = [each for n in "ab" for each in (reply(calls("lookup", {}, n)), reply(says(n)))]
    async with world(reply(says("a")), *called) as w:
        async with w.another(capabilities=CAN) as owner:
            thread = await start(owner, dynamicTools=[TOOL])
            await say(owner, thread)
            await join(w.client, thread)
        await say(w.client, thread)  # it fails: the tool's client has left
        async with w.another(capabilities=CAN) as owner:
            await join(owner, thread)
            await run_by(owner, w, thread)
        assert asked(w.client, TOOL_CALL) == []


async def test_who_takes_a_thread_back_runs_its_tools_where_their_owner_has_left(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b")), *CALLED) as w:
        async with w.another(capabilities=CAN) as owner:
            thread = await start(owner, dynamicTools=[TOOL])
            await join(w.client, thread)
            await say(w.client, thread)
        await say_and_take_back(w.client, thread)
        await run_by(w.client, w, thread)


async def test_who_leaves_questions_to_others_is_still_asked_for_its_own_tools(world: MakeWorld) -> None:
    last: Json = {**CAN, "extensions": {"questions": "last"}}
    async with world(*CALLED) as w, w.another(capabilities=last) as script:
        thread = await start(script, dynamicTools=[TOOL])
        await join(w.client, thread)
        await run_by(script, w, thread)
