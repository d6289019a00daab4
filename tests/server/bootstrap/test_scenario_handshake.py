"""Handshake and subscriptions: which requests are allowed when, which client receives what, and the rare cases of
docs/protocol.md.
"""

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused, text_item
from tests.support.scripted_model import Hold, reply, says, script
from tests.support.world import MakeWorld

pytestmark = pytest.mark.scenario

NOBODY = "01890000-0000-7000-8000-000000000000"


async def test_nothing_works_before_initialize_and_everything_after(world: MakeWorld) -> None:
    async with world(initialize=False) as w:
        with pytest.raises(Refused, match="Not initialized") as refused:
            await w.client.call("getUserAgent")
        assert (refused.value.code, refused.value.data["kind"]) == (-32600, "not_initialized")
        await w.client.initialize()
        assert await w.client.call("getUserAgent")


async def test_initialize_comes_once(world: MakeWorld) -> None:
    async with world() as w:
        with pytest.raises(Refused, match="Already initialized") as refused:
            await w.client.initialize()
        assert refused.value.code == -32600


async def test_a_bad_initialize_may_be_followed_by_a_good_one(world: MakeWorld) -> None:
    async with world(initialize=False) as w:
        with pytest.raises(Refused, match="clientInfo") as refused:
            await w.client.call("initialize", {})
        assert refused.value.data == {"kind": "invalid_params", "field": "clientInfo"}
        await w.client.initialize()


async def test_the_client_is_named_to_the_provider(world: MakeWorld) -> None:
    async with world(reply(says("a")), initialize=False) as w:
        await w.client.call("initialize", {"clientInfo": {"name": "my\r\neditor", "version": "7"}})
        told = (await w.client.call("getUserAgent"))["userAgent"]
        await w.client.turn(await w.open())
    assert "editor" in told
    assert w.model.requests[0].headers["user-agent"] == told


@pytest.mark.parametrize("id", [7, -7, 0, "", "text", "ünï", 2**63 - 1, -(2**63), "x" * 100_000])
async def test_an_id_comes_back_as_it_was_sent(world: MakeWorld, id: int | str) -> None:
    async with world(initialize=False) as w:
        params = {"clientInfo": {"name": "t", "version": "1"}}
        assert (await w.client.ask("initialize", params, id=id))["id"] == id


@pytest.mark.parametrize("params", [None, {}, {"something": "new"}])
async def test_parameters_may_be_left_out_where_there_are_none(world: MakeWorld, params: Json) -> None:
    async with world() as w:
        await w.client.write({"id": "a", "method": "getUserAgent", "params": params})
        assert "result" in await w.client.answer_to("a")
        await w.client.write({"id": "b", "method": "listConversations", "jsonrpc": "2.0", "params": params})
        assert "result" in await w.client.answer_to("b")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sendUserMessage", {"items": []}),
        ("interruptConversation", {}),
        ("addConversationListener", {}),
        ("submit", {"op": {"type": "undo"}}),
    ],
)
async def test_an_unknown_conversation_is_not_found(world: MakeWorld, method: str, params: Json) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=f"conversation not found: {NOBODY}") as refused:
            await w.client.call(method, {"conversationId": NOBODY, **params})
        assert (refused.value.code, refused.value.data["kind"]) == (-32600, "conversation_not_found")


async def test_without_a_listener_a_turn_runs_and_nothing_is_said(world: MakeWorld) -> None:
    async with world(reply(says("unheard")), reply(says("heard"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation = opened["conversationId"]
        await w.client.say(conversation, "silent")
        # This operation ends after the turn, so nothing runs any more when it is answered.
        await w.client.call(
            "archiveConversation", {"conversationId": conversation, "rolloutPath": opened["rolloutPath"]}
        )
        assert not [m for m in w.client.received() if m.get("method")]


async def test_a_listener_that_was_removed_hears_no_more(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(says("one")), reply(hold, says("two")), reply(says("three"))) as w:
        conversation = (await w.client.call("newConversation", {"cwd": str(w.workspace)}))["conversationId"]
        subscriptions = [await w.client.listen(conversation) for _ in range(2)]
        await w.client.turn(conversation)
        for each in subscriptions:
            await w.client.call("removeConversationListener", {"subscriptionId": each})
        heard = len(w.client.events("task_started"))
        await w.client.say(conversation, "into the void")
        await hold.reached.wait()
        hold.release()
        assert len(w.client.events("task_started")) == heard
        await w.client.listen(conversation)
        await w.client.expect("task_complete")
        assert (await w.client.turn(conversation, "back again")).last_message == "three"
        with pytest.raises(Refused, match="subscription not found"):
            await w.client.call("removeConversationListener", {"subscriptionId": subscriptions[0]})


async def test_a_listener_can_be_removed_once_after_its_conversation_has_ended(world: MakeWorld) -> None:
    async with world(reply(says("one"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation = opened["conversationId"]
        first = await w.client.listen(conversation)
        await w.client.turn(conversation)
        await w.client.call("resumeConversation", {"conversationId": conversation})
        second = await w.client.listen(conversation)
        await w.client.call(
            "archiveConversation", {"conversationId": conversation, "rolloutPath": opened["rolloutPath"]}
        )
        for subscription in (first, second):
            params = {"subscriptionId": subscription}
            assert await w.client.call("removeConversationListener", params) == {}
            with pytest.raises(Refused, match="subscription not found"):
                await w.client.call("removeConversationListener", params)


async def test_two_listeners_of_one_conversation_hear_each_event_once(world: MakeWorld) -> None:
    async with world(reply(says("once"))) as w:
        conversation = await w.open()
        await w.client.listen(conversation)
        await w.client.turn(conversation)
        assert len(w.client.events("agent_message")) == 1


async def test_raw_items_are_for_those_who_asked(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:
        quiet, raw = await w.open(), await w.open(raw=True)
        assert "raw_response_item" not in (await w.client.turn(quiet)).kinds()
        items = (await w.client.turn(raw)).of("raw_response_item")
        assert [item["item"]["role"] for item in items if item["item"]["type"] == "message"][
            -1
        ] == "assistant"


async def test_two_conversations_do_not_mix(world: MakeWorld) -> None:
    first, second = Hold(), Hold()
    async with world(reply(first, says("from one")), reply(second, says("from two"))) as w:
        one, two = await w.open(), await w.open(model="other")
        await w.client.say(one, "to one")
        await first.reached.wait()
        await w.client.say(two, "to two")
        await second.reached.wait()
        # Both turns run; the second may end first.
        second.release()
        assert (await w.client.rest_of_turn(two, start=0)).last_message == "from two"
        assert not w.client.events("task_complete", one)
        first.release()
        assert (await w.client.rest_of_turn(one, start=0)).last_message == "from one"
    assert [request.texts() for request in w.model.requests] == [["to one"], ["to two"]]
    assert [request.body["model"] for request in w.model.requests] == ["scripted", "other"]


async def test_requests_of_one_conversation_keep_their_order(world: MakeWorld) -> None:
    """The requests are sent without waiting for answers. They are answered in that order, and reach the model in that
    order.
    """
    hold = Hold()
    async with world(reply(hold, says("a")), reply(says("b"))) as w:
        conversation = await w.open()
        params = [{"conversationId": conversation, "items": [text_item(str(n))]} for n in range(20)]
        ids = [await w.client.send("sendUserMessage", each) for each in params]
        for id in ids:
            await w.client.answer_to(id)
        await hold.reached.wait()
        hold.release()
        while len(w.model.requests[-1].texts()) < 20:
            await w.client.expect("agent_message")
        await w.client.idle()
        answered = [m["id"] for m in w.client.received() if m.get("id") in ids]
    assert answered == ids
    assert w.model.requests[-1].texts() == [str(n) for n in range(20)]


async def test_operations_are_numbered_anew_after_a_resume_and_by_interrupts(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two")), reply(says("three"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "a")
        assert await w.client.interrupt(conversation) == {"abortReason": "interrupted"}
        await w.client.turn(conversation, "b")
        assert w.client.events("turn_aborted") == []
        await w.client.resume(conversationId=conversation)
        await w.client.turn(conversation, "c")
    begun = [each for each in w.client.received() if each.get("method") == "codex/event/task_started"]
    assert [each["params"]["id"] for each in begun] == ["0", "2", "0"]


async def test_resuming_what_is_open_ends_its_turn_its_listeners_and_its_question(world: MakeWorld) -> None:
    asking = {"approval_policy": "untrusted", "sandbox_mode": "workspace-write"}
    async with world(reply(script("echo > made")), reply(says("next")), config=asking) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        question = await w.client.expect("execCommandApproval")
        await w.client.call("resumeConversation", {"conversationId": conversation})
        assert w.client.events("turn_aborted") == [{"type": "turn_aborted", "reason": "interrupted"}]
        await w.client.answer(question, {"decision": "approved"})
        await w.client.call("sendUserMessage", {"conversationId": conversation, "items": [text_item("x")]})
        assert len(w.client.events("task_started")) == 1, "nobody listens any more"
        await w.client.listen(conversation)
        await w.client.expect("task_complete")
        assert not (w.workspace / "made").exists()


async def test_without_a_listener_events_and_questions_wait(world: MakeWorld) -> None:
    async with world(
        reply(script("echo > made")), reply(says("x")), config={"approval_policy": "untrusted"}
    ) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation = opened["conversationId"]
        await w.client.call("sendUserMessage", {"conversationId": conversation, "items": [text_item("x")]})
        await w.client.listen(conversation)
        await w.client.answer(await w.client.expect("execCommandApproval"), {"decision": "approved"})
        await w.client.expect("task_complete")
    received = [each.get("method", "answer") for each in w.client.received()]
    asked = [each for each in w.client.received() if each.get("method") == "addConversationListener"]
    assert asked == []
    assert received.index("codex/event/task_started") > received.index("answer")
    assert w.client.events("session_configured") == []


async def test_a_folder_that_does_not_exist_fails_commands_only(world: MakeWorld) -> None:
    async with world(reply(script("pwd")), reply(says("gone"))) as w:
        conversation = await w.client.open(cwd="/no/such/folder")
        turn = await w.client.turn(conversation, "where?")
    assert turn.last_message == "gone"
    assert [each["exit_code"] for each in w.client.events("exec_command_end")] == [-1]
    assert "No such file or directory" in w.model.requests[1].outputs()["c1"]
