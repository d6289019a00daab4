"""Reasoning efforts beyond those that are known: said by the client, sent to the model, stored and shown again."""

import json

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says
from tests.support.thread_client import ended, notified, say, start, words
from tests.support.world import MakeWorld, World


def sent(w: World) -> list[Json]:
    """The efforts that the model was asked with."""
    return [request.body.get("reasoning", {}).get("effort") for request in w.model.requests]


@pytest.mark.parametrize("effort", ["xhigh", "as much as it takes"])
async def test_what_the_client_says_reaches_the_model_and_comes_back(world: MakeWorld, effort: str) -> None:
    async with world(reply(says("a")), reply(says("b")), reply(says("c"))) as w:
        thread = await start(w.client)
        params = {"threadId": thread, "input": words("hi"), "effort": effort}
        await ended(w.client, (await w.client.call("turn/start", params))["turn"]["id"])
        [changed] = notified(w, "thread/settings/updated")
        assert changed["threadSettings"]["effort"] == effort
        await say(w.client, thread)
        assert sent(w) == [effort, effort]
        [stored] = w.home.glob("sessions/**/rollout-*.jsonl")
        lines = [json.loads(line) for line in stored.read_text().splitlines()]
        assert [each["payload"]["further_effort"] for each in lines if each["type"] == "turn_context"][
            :1
        ] == [effort]
        [listed] = (await w.client.call("thread/list", {}))["data"]
        assert listed["reasoningEffort"] == effort
        # The conversation API has a closed list; it goes on with the thread all the same.
        resumed = await w.client.call("resumeConversation", {"path": str(stored)})
        assert resumed["conversationId"] == thread


async def test_ultra_is_a_word_of_clients(world: MakeWorld) -> None:
    """No provider takes it. The client has it shown as it chose it."""
    async with world(reply(says("a")), reply(says("b"))) as w:
        for model in ("scripted", "gpt-5.1"):
            thread = await start(w.client, model=model)
            params = {"threadId": thread, "input": words("hi"), "effort": "ultra"}
            await ended(w.client, (await w.client.call("turn/start", params))["turn"]["id"])
        assert [each["threadSettings"]["effort"] for each in notified(w, "thread/settings/updated")] == [
            "ultra",
            "ultra",
        ]
        assert sent(w) == ["high", "high"]


async def test_a_stored_effort_holds_after_a_resume(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        thread = await start(w.client)
        params = {"threadId": thread, "input": words("hi"), "effort": "max"}
        await ended(w.client, (await w.client.call("turn/start", params))["turn"]["id"])
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert resumed["reasoningEffort"] == "max"
        await say(w.client, thread)
        assert sent(w) == ["max", "max"]


@pytest.mark.parametrize(
    ("effort", "nearest"), [("xhigh", "high"), ("max", "high"), ("minimal", "minimal"), ("own", None)]
)
async def test_a_configured_effort_is_shown_by_both_apis(
    world: MakeWorld, effort: str, nearest: str | None
) -> None:
    async with world(reply(says("a")), config={"model_reasoning_effort": effort}) as w:
        opened = await w.client.call("newConversation", {})
        assert opened["reasoningEffort"] == nearest
        saved = (await w.client.call("getUserSavedConfig"))["config"]
        assert saved["modelReasoningEffort"] == nearest
        started = await w.client.call("thread/start", {})
        assert started["reasoningEffort"] == effort
        await say(w.client, started["thread"]["id"])
        assert sent(w) == [effort]


@pytest.mark.parametrize("effort", ["", "x" * 65])
async def test_an_effort_has_a_length(world: MakeWorld, effort: str) -> None:
    async with world() as w:
        thread = await start(w.client)
        with pytest.raises(Refused, match="1 to 64 characters"):
            await w.client.call("turn/start", {"threadId": thread, "input": words("hi"), "effort": effort})
