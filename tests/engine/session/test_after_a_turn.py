"""The notify program in a whole conversation."""

import json
import sys

import pytest

from tests.support.scripted_model import Hold, begins_to_say, reply, says, script
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = [pytest.mark.process, pytest.mark.integration]

TELL = "import os,sys; p=sys.argv[1]; open(p+'.new','w').write(sys.argv[2]); os.rename(p+'.new',p)"


async def notifying(w: World) -> str:
    """Open a conversation whose notify program writes down its argument; return its id."""
    program = [sys.executable, "-I", "-S", "-c", TELL, str(w.root / "told")]
    return await w.open(config={"notify": program})


async def told(w: World) -> str:
    path = w.root / "told"
    await until(path.exists)
    return path.read_text()


@pytest.mark.process
async def test_the_program_is_told_what_the_user_said_and_the_model_answered(world: MakeWorld) -> None:
    held = Hold()
    replies = reply(script("true"), held), reply(says("Done"))
    async with world(*replies) as w:
        conversation = await notifying(w)
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
        conversation = await notifying(w)
        await w.client.say(conversation, "first")
        await held.reached.wait()
        await w.client.interrupt(conversation)
        await w.client.turn(conversation, "second")
        assert json.loads(await told(w))["last-assistant-message"] == "Second"
