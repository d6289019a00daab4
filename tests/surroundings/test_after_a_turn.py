"""The notify program and the user's own prompts, in a whole conversation."""

import json
import sys

import pytest

from tests.support.scripted_model import Hold, begins_to_say, reply, says, script
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

TELL = "import os,sys; p=sys.argv[1]; open(p+'.new','w').write(sys.argv[2]); os.rename(p+'.new',p)"


async def told(w: World) -> str:
    path = w.root / "told"
    await until(path.exists)
    return path.read_text()


@pytest.mark.process
async def test_the_program_is_told_what_the_user_said_and_the_model_answered(world: MakeWorld) -> None:
    held = Hold()
    replies = reply(script("true"), held), reply(says("Done"))
    async with world(*replies) as w:
        program = [sys.executable, "-I", "-S", "-c", TELL, str(w.root / "told")]
        opened = await w.client.call(
            "newConversation", {"cwd": str(w.workspace), "config": {"notify": program}}
        )
        conversation = opened["conversationId"]
        await w.client.listen(conversation)
        await w.client.say(conversation, "Rename it")
        await held.reached.wait()
        await w.client.say(conversation, "quickly")
        held.release()
        turn = await w.client.rest_of_turn(conversation)
        notice = json.loads(await told(w))
        started = turn.of("task_started")
    assert started
    assert notice == {
        "type": "agent-turn-complete",
        "thread-id": conversation,
        "turn-id": "0",
        "cwd": str(w.workspace),
        "input-messages": ["Rename it", "quickly"],
        "last-assistant-message": "Done",
    }


async def test_an_interrupted_turn_is_not_told_of(world: MakeWorld) -> None:
    held = Hold()
    async with world(reply(begins_to_say(), held), reply(says("Second"))) as w:
        program = [sys.executable, "-I", "-S", "-c", TELL, str(w.root / "told")]
        opened = await w.client.call(
            "newConversation", {"cwd": str(w.workspace), "config": {"notify": program}}
        )
        conversation = opened["conversationId"]
        await w.client.listen(conversation)
        await w.client.say(conversation, "first")
        await held.reached.wait()
        await w.client.interrupt(conversation)
        await w.client.turn(conversation, "second")
        assert json.loads(await told(w))["last-assistant-message"] == "Second"


async def test_prompts_are_listed_with_what_their_front_matter_says(world: MakeWorld) -> None:
    async with world() as w:
        prompts = w.home / "prompts"
        w.write(
            {
                "review.md": "---\ndescription: Look at it\nargument-hint: FILE\n---\nReview $1\n",
                "plain.md": "Just do it",
                "notes.txt": "no prompt",
                "bad.md": b"\xff\xfe",
            },
            under=prompts,
        )
        conversation = await w.open()
        await w.client.submit(conversation, {"type": "list_custom_prompts"})
        answer = await w.client.expect("list_custom_prompts_response")
    plain, review = answer["params"]["msg"]["custom_prompts"]
    assert (plain["name"], plain["content"]) == ("plain", "Just do it")
    assert review == {
        "name": "review",
        "path": str(prompts / "review.md"),
        "content": "Review $1\n",
        "description": "Look at it",
        "argument_hint": "FILE",
    }


async def test_session_configured_says_where_the_conversation_stands(world: MakeWorld) -> None:
    async with world(config={"model_reasoning_effort": "low"}) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        rollouts = [str(path) for path in w.rollouts()]
    assert opened["model"] == "scripted"
    assert opened["reasoningEffort"] == "low"
    assert opened["rolloutPath"] in rollouts
    assert opened["conversationId"] in opened["rolloutPath"]
