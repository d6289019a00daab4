"""Answers that are cut off by the output limit, and empty answers, over both APIs that have such limits."""

import json

import pytest

from tests.support.claude import claude_reply, shell, text
from tests.support.scripted_model import Reply, chat_reply
from tests.support.thread_client import ended, items, start, turn
from tests.support.world import MakeWorld

pytestmark = pytest.mark.scenario

CUT = "The call was cut off by the output limit and was not run."


def cut_call(wire: str, id: str) -> Reply:
    """Return a reply with a part of a call, cut off by the provider."""
    if wire == "messages":
        return claude_reply(shell("touch made", id), stop="max_tokens", id=f"msg_{id}")
    function = {"name": "shell", "arguments": '{"command": ["touch", "ma'}
    piece = {"index": 0, "id": id, "type": "function", "function": function}
    return chat_reply({"tool_calls": [piece]}, finish="length")


def says(wire: str, words: str) -> Reply:
    return claude_reply(text(words), id="msg_9") if wire == "messages" else chat_reply({"content": words})


WIRES = pytest.mark.parametrize("wire", ["chat", "messages"])


@WIRES
async def test_a_call_that_is_cut_off_is_not_run_and_the_model_is_told(world: MakeWorld, wire: str) -> None:
    replies = cut_call(wire, "c1"), says(wire, "sorry"), says(wire, "again")
    async with world(*replies, provider={"wire": wire}) as w:
        thread = await start(w.client)
        done = await ended(w.client, await turn(w.client, thread))
        assert done["status"] == "completed", done["error"]
        assert items(w)[-1]["text"] == "sorry"
        assert CUT in json.dumps(w.model.requests[1].body)
        assert not (w.workspace / "made").exists()
        again = await ended(w.client, await turn(w.client, thread))
        assert again["status"] == "completed"


@WIRES
async def test_a_model_whose_calls_are_always_cut_off_is_not_asked_for_ever(
    world: MakeWorld, wire: str
) -> None:
    replies = [cut_call(wire, f"c{n}") for n in range(5)]
    async with world(*replies, provider={"wire": wire}) as w:
        done = await ended(w.client, await turn(w.client, await start(w.client)))
        assert done["status"] == "failed"
        assert "incomplete, reason: " in done["error"]["message"]
        assert len(w.model.requests) == 2


@pytest.mark.parametrize("retries", [0, 1])
async def test_an_answer_of_nothing_is_asked_for_once_more_where_retries_are_allowed(
    world: MakeWorld, retries: int
) -> None:
    replies = chat_reply({"content": " \n"}), chat_reply({"content": "here"})
    provider = {"wire": "chat", "stream_max_retries": retries}
    async with world(*replies, provider=provider) as w:
        done = await ended(w.client, await turn(w.client, await start(w.client)))
        assert done["status"] == ("completed" if retries else "failed")
        assert len(w.model.requests) == 1 + retries
        if not retries:
            assert "ended its answer without text or a call" in done["error"]["message"]
