"""Who hears what: conversations side by side, listeners that come late, leave, or never come."""

import pytest

from tests.support.client import Refused, text_item
from tests.support.scripted_model import Hold, reply, says
from tests.support.world import MakeWorld


async def test_without_a_listener_a_turn_runs_and_nothing_is_said(world: MakeWorld) -> None:
    async with world(reply(says("unheard")), reply(says("heard"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation = opened["conversationId"]
        await w.client.say(conversation, "silent")
        # An operation that ends when the turn has: nothing runs any more when this is answered.
        await w.client.call(
            "archiveConversation", {"conversationId": conversation, "rolloutPath": opened["rolloutPath"]}
        )
        assert not [m for m in w.client.received() if m.get("method")]


async def test_a_late_listener_hears_everything(world: MakeWorld) -> None:
    async with world(reply(says("early")), reply(says("late"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation = opened["conversationId"]
        await w.client.say(conversation, "first")
        await w.client.listen(conversation)
        await w.client.expect("task_complete")
        assert w.client.events("agent_message")[0]["message"] == "early"
        assert (await w.client.turn(conversation, "second")).last_message == "late"


async def test_a_listener_that_was_removed_hears_no_more(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(says("one")), reply(hold, says("two")), reply(says("three"))) as w:
        conversation = await w.open()
        subscription = await w.client.listen(conversation)
        await w.client.turn(conversation)
        for each in (subscription, (await _first_subscription(w.client))):
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
            await w.client.call("removeConversationListener", {"subscriptionId": subscription})


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


async def _first_subscription(client: object) -> str:
    for message in client.received():  # type: ignore[attr-defined]
        if "subscriptionId" in (message.get("result") or {}):
            return str(message["result"]["subscriptionId"])
    raise AssertionError("nobody listens")


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
    """Sent without waiting for answers; answered in that order, and said to the model in that order."""
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
