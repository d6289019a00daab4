"""Stopping what runs, and speaking while it runs."""

from tests.support.client import text_item
from tests.support.scripted_model import (
    CREATED,
    Hold,
    Reply,
    begins_to_say,
    failure,
    reply,
    says,
    script,
    word,
)
from tests.support.world import MakeWorld


async def test_a_running_command_is_ended_and_the_model_learns_that_it_was(world: MakeWorld) -> None:
    call = script("echo begun; sleep 1000 & sleep 1000")
    async with world(reply(call), reply(says("a new turn"))) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("exec_command_output_delta")
        assert await w.client.interrupt(conversation) == {"abortReason": "interrupted"}
        assert w.client.events("turn_aborted") == [{"type": "turn_aborted", "reason": "interrupted"}]
        await w.client.turn(conversation, "go on")
    output = w.model.requests[1].outputs()["c1"]
    assert "aborted" in output
    assert w.model.requests[1].texts()[-1] == "go on"


async def test_a_stream_is_left_and_the_next_turn_is_fresh(world: MakeWorld) -> None:
    forever = Hold()
    async with world(reply(begins_to_say(), word("never ending"), forever), reply(says("again"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "talk")
        await w.client.expect("agent_message_delta")
        await w.client.interrupt(conversation)
        turn = await w.client.turn(conversation, "go on")
    assert turn.last_message == "again"
    assert w.model.requests[1].texts() == ["talk", "go on"]
    assert w.model.requests[1].texts("assistant") == []


async def test_a_turn_that_waits_for_consent_can_be_interrupted(world: MakeWorld) -> None:
    asking = {"approval_policy": "untrusted"}
    async with world(reply(script("echo > made")), reply(says("next")), config=asking) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        question = await w.client.expect("execCommandApproval")
        await w.client.interrupt(conversation)
        await w.client.answer(question, {"decision": "approved"})
        turn = await w.client.turn(conversation, "go on")
        assert turn.last_message == "next"
        assert not (w.workspace / "made").exists(), "consent that comes too late"
    assert "c1" in w.model.requests[1].outputs()


async def test_a_turn_that_waits_for_its_next_try_can_be_interrupted(world: MakeWorld) -> None:
    busy = failure(429, {"error": {"message": "slow down"}}, **{"retry-after": "3600"})
    retrying = {"request_max_retries": 3, "stream_max_retries": 3}
    cut = Reply((CREATED,), cut=True)
    async with world(cut, busy, busy, reply(says("ok")), provider=retrying) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("stream_error")
        await w.client.interrupt(conversation)
        await w.client.expect("turn_aborted")


async def test_an_idle_conversation_answers_an_interrupt_at_once(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        assert await w.client.interrupt(conversation) == {"abortReason": "interrupted"}
        assert (await w.client.turn(conversation)).last_message == "ok"
        await w.client.interrupt(conversation)
    assert not w.client.events("turn_aborted")


async def test_a_second_interrupt_is_answered_too(world: MakeWorld) -> None:
    async with world(reply(Hold())) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("task_started")
        ids = [
            await w.client.send("interruptConversation", {"conversationId": conversation}) for _ in range(3)
        ]
        answers = [await w.client.answer_to(id) for id in ids]
        assert [answer["result"] for answer in answers] == [{"abortReason": "interrupted"}] * 3
        await w.client.anywhere("turn_aborted")
    assert len(w.client.events("turn_aborted")) == 1


async def test_only_the_conversation_that_was_meant_is_interrupted(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold, says("goes on")), reply(Hold())) as w:
        one, two = await w.open(), await w.open()
        await w.client.say(one)
        await hold.reached.wait()
        await w.client.say(two)
        await w.client.expect("task_started", two)
        await w.client.interrupt(two)
        hold.release()
        assert (await w.client.rest_of_turn(one, start=0)).last_message == "goes on"


async def test_a_message_while_a_command_runs_joins_the_turn(world: MakeWorld) -> None:
    async with world(reply(script("echo begun; read line < gate")), reply(says("both"))) as w:
        w.fifo("gate")
        conversation = await w.open()
        await w.client.say(conversation, "start")
        await w.client.expect("exec_command_output_delta")
        await w.client.say(conversation, "and this")
        # Answered after what was said before it has been dealt with.
        await w.client.submit(conversation, {"type": "list_custom_prompts"})
        await w.client.expect("list_custom_prompts_response")
        await w.open_gate("gate")
        await w.client.expect("task_complete")
    assert len(w.client.events("task_started")) == 1
    assert w.model.requests[1].texts() == ["start", "and this"]
    kinds = [item.get("role", item["type"]) for item in w.model.requests[1].input]
    assert kinds[-3:] == ["function_call", "function_call_output", "user"]


async def test_a_message_during_the_last_reply_is_not_lost(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold, says("first")), reply(says("second"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "start")
        await hold.reached.wait()
        await w.client.say(conversation, "one more thing")
        await w.client.submit(conversation, {"type": "list_custom_prompts"})
        await w.client.expect("list_custom_prompts_response")
        hold.release()
        while (await w.client.expect("agent_message"))["params"]["msg"]["message"] != "second":
            pass
        await w.client.idle()
    assert w.model.requests[1].texts() == ["start", "one more thing"]
    assert w.model.requests[1].texts("assistant") == ["first"]


async def test_a_message_to_an_interrupted_turn_is_not_lost(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold), reply(says("next"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "start")
        await hold.reached.wait()
        await w.client.say(conversation, "listen to this")
        await w.client.submit(conversation, {"type": "list_custom_prompts"})
        await w.client.expect("list_custom_prompts_response")
        await w.client.interrupt(conversation)
        await w.client.say(conversation, "well?")
        await w.client.expect("agent_message")
        await w.client.idle()
    assert w.model.requests[-1].texts() == ["start", "listen to this", "well?"]


async def test_a_hundred_messages_without_waiting_are_all_sent_in_order(world: MakeWorld) -> None:
    many = [reply(says(str(n))) for n in range(101)]
    async with world(*many) as w:
        conversation = await w.open()
        words = [f"word {n}" for n in range(100)]
        for each in words:
            await w.client.send(
                "sendUserMessage", {"conversationId": conversation, "items": [text_item(each)]}
            )
        while not w.model.requests or w.model.requests[-1].texts() != words:
            await w.client.expect("agent_message")
        await w.client.idle()
