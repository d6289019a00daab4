"""What existing clients of the thread API rely on, one test for each requirement: shapes, bounds of lines, bytes."""

import json

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.scripted_model import done, patches, reply, says, script
from tests.support.thread_client import ended, start, turn, words
from tests.support.world import MakeWorld, World

LINE = 64 * 1024
"""What a reader of asyncio takes by default."""


def items(w: World, method: str = "item/completed") -> list[Json]:
    return [m["params"]["item"] for m in w.client.received() if m.get("method") == method]


def of_kind(found: list[Json], kind: str) -> Json:
    return next(item for item in found if item["type"] == kind)


async def test_fields_without_a_value_are_there_as_null(world: MakeWorld) -> None:
    """Clients that parse strictly drop a message without them, and wait for ever."""
    async with world(reply(script("true")), reply(says("a"))) as w:
        id = await turn(w.client, await start(w.client))
        done = await ended(w.client, id)
        assert done["error"] is None
        assert of_kind(items(w), "agentMessage")["phase"] is None
        begun = of_kind(items(w, "item/started"), "commandExecution")
        for name in ("processId", "aggregatedOutput", "exitCode", "durationMs"):
            assert begun[name] is None
        assert of_kind(items(w), "userMessage")["content"][0]["text_elements"] == []
        usage = [
            m["params"]["tokenUsage"] for m in w.client.received() if "tokenUsage" in (m.get("method") or "")
        ]
        assert "modelContextWindow" in usage[0]


async def test_no_line_is_longer_than_readers_take(world: MakeWorld) -> None:
    """Output, patches and pages of history are cut instead: many clients read lines of at most 64 KiB."""
    noisy = script("head -c 400000 /dev/zero | tr '\\0' x; echo; seq 1 60000", timeout_ms=20000)
    texts = [reply(says("w" * 30_000)) for _ in range(4)]
    async with world(reply(noisy), reply(says("done")), *texts) as w:
        thread = await start(w.client)
        for _ in range(5):
            await ended(w.client, await turn(w.client, thread))
        cursor, seen = None, 0
        while True:
            page = await w.client.call("thread/items/list", {"threadId": thread, "cursor": cursor})
            seen, cursor = seen + len(page["data"]), page["nextCursor"]
            if cursor is None:
                break
        assert seen == 11
        await w.client.call("thread/turns/list", {"threadId": thread, "itemsView": "full"})
        await w.client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        assert [len(json.dumps(m)) for m in w.client.received() if len(json.dumps(m)) > LINE] == []


async def test_long_lines_and_unknown_fields_are_taken(world: MakeWorld) -> None:
    """Clients send prompts of hundreds of kilobytes, and fields of versions to come, everywhere."""
    async with world(reply(says("a")), initialize=False) as w:
        await w.client.call(
            "initialize",
            {
                "clientInfo": {"name": "c", "version": "1", "future": 1},
                "capabilities": {"experimentalApi": True, "future": {"a": [1]}},
                "future": None,
            },
        )
        begun = await w.client.call(
            "thread/start", {"future": {"deep": [{}]}, "config": {"future_setting": 1}}
        )
        text = "é" * 300_000
        input = [{"type": "text", "text": text, "future": True}]
        started = await w.client.call(
            "turn/start", {"threadId": begun["thread"]["id"], "input": input, "future": "x"}
        )
        assert (await ended(w.client, started["turn"]["id"]))["status"] == "completed"
        assert text in w.model.requests[0].body["input"][-1]["content"][0]["text"]


async def test_requests_are_served_before_initialized(world: MakeWorld) -> None:
    """Some clients never send that notification."""
    async with world(reply(says("a")), initialize=False) as w:
        await w.client.initialize()
        await ended(w.client, await turn(w.client, await start(w.client)))
        await w.client.tell("initialized")


async def test_an_unknown_method_is_refused_in_both_phrases_and_briefly(world: MakeWorld) -> None:
    """One client forgives `unknown variant`, another `Method not found`; a list of all methods would name `login`."""
    async with world() as w:
        with pytest.raises(Refused) as refused:
            await w.client.call("thread/some/new/method", {})
        assert "unknown variant" in refused.value.message
        assert "Method not found" in refused.value.message
        assert len(refused.value.message) < 200


async def test_a_patch_is_shown_before_and_after_it_was_written(world: MakeWorld) -> None:
    """Clients show the changes of the item; its question does not repeat them."""
    patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    async with world(reply(patches(patch)), reply(says("a")), config={"approval_policy": "untrusted"}) as w:
        id = await turn(w.client, await start(w.client))
        question = await w.client.expect("item/fileChange/requestApproval")
        begun = of_kind(items(w, "item/started"), "fileChange")
        assert question["params"]["itemId"] == begun["id"]
        [change] = begun["changes"]
        assert (change["path"], change["kind"]["type"]) == (str(w.workspace / "new.txt"), "add")
        await w.client.answer(question, {"decision": "accept"})
        await ended(w.client, id)
        assert of_kind(items(w), "fileChange")["status"] == "completed"


async def test_the_input_of_a_turn_comes_back_with_the_name_that_the_client_gave_it(world: MakeWorld) -> None:
    """By `clientId` a client finds its own message among the items."""
    async with world(reply(says("a"))) as w:
        params = {"threadId": await start(w.client), "input": words("hi"), "clientUserMessageId": "mine-1"}
        started = await w.client.call("turn/start", params)
        await ended(w.client, started["turn"]["id"])
        assert of_kind(items(w), "userMessage")["clientId"] == "mine-1"


async def test_the_input_of_a_turn_comes_back_as_it_was_sent(world: MakeWorld) -> None:
    """With the ranges that the client shows in a form of its own, live and from the file."""
    element = {"byteRange": {"start": 4, "end": 10}, "placeholder": "@a.txt"}
    sent = {"type": "text", "text": "see @a.txt", "text_elements": [element]}
    async with world(reply(says("a"))) as w:
        thread = await start(w.client)
        started = await w.client.call("turn/start", {"threadId": thread, "input": [sent]})
        await ended(w.client, started["turn"]["id"])
        assert of_kind(items(w), "userMessage")["content"] == [sent]
        assert w.model.requests[0].texts() == ["see @a.txt"]
    async with world() as w:
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert read["thread"]["turns"][0]["items"][0]["content"] == [sent]


async def test_a_commentary_is_no_answer(world: MakeWorld) -> None:
    """Clients take the message that `turn/completed` names for the answer of the turn."""

    def phased(text: str, phase: str) -> Json:
        return done({**says(text, text)["item"], "phase": phase})

    said = phased("the answer", "final_answer"), phased("an aside", "commentary")
    async with world(reply(*said), reply(phased("alone", "commentary"))) as w:
        thread = await start(w.client)
        answered, silent = [await ended(w.client, await turn(w.client, thread)) for _ in range(2)]
        assert [item["text"] for item in answered["items"]] == ["the answer"]
        assert (silent["items"], silent["itemsView"]) == ([], "notLoaded")
        pages = await w.client.call("thread/turns/list", {"threadId": thread, "sortDirection": "asc"})
        named = [[i["text"] for i in each["items"] if "text" in i] for each in pages["data"]]
        assert named == [["the answer"], []]


async def test_a_message_of_several_parts_is_one_item(world: MakeWorld) -> None:
    parts = [{"type": "output_text", "text": text} for text in ("a", "b")]
    async with world(reply(done({**says("")["item"], "content": parts}))) as w:
        thread = await start(w.client)
        [shown] = (await ended(w.client, await turn(w.client, thread)))["items"]
        assert shown["text"] == "ab"
    async with world() as w:
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert read["thread"]["turns"][0]["items"][1:] == [shown]
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert resumed["thread"]["turns"] == read["thread"]["turns"]


async def test_the_phase_of_a_message_is_told_and_kept(world: MakeWorld) -> None:
    """Two clients end a turn at the final answer, and the model reads its own phases again."""
    aside, answer = (
        done({**says(text, id)["item"], "phase": phase})
        for text, id, phase in (("looking", "m1", "commentary"), ("found", "m2", "final_answer"))
    )
    async with world(reply(aside, script("true")), reply(answer), reply(says("a"))) as w:
        thread = await start(w.client)
        for _ in range(2):
            await ended(w.client, await turn(w.client, thread))
        told = [(i["text"], i["phase"]) for i in items(w) if i["type"] == "agentMessage"]
        assert told == [("looking", "commentary"), ("found", "final_answer"), ("a", None)]
        sent = [item.get("phase") for item in w.model.requests[-1].input if item.get("role") == "assistant"]
        assert sent == ["commentary", "final_answer"]
    async with world() as w:
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        stored = [i for each in read["thread"]["turns"] for i in each["items"] if i["type"] == "agentMessage"]
        assert [(i["text"], i["phase"]) for i in stored] == told


async def test_a_turn_without_words_lets_the_model_go_on(world: MakeWorld) -> None:
    """Clients continue an interrupted turn that way; nothing is shown as said."""
    async with world(reply(says("one")), reply(says("two"))) as w:
        thread = await start(w.client)
        await ended(w.client, await turn(w.client, thread))
        started = await w.client.call("turn/start", {"threadId": thread, "input": []})
        done_turn = await ended(w.client, started["turn"]["id"])
        assert (done_turn["status"], done_turn["items"][0]["text"]) == ("completed", "two")
        assert [item["type"] for item in items(w)] == ["userMessage", "agentMessage", "agentMessage"]
        assert w.model.requests[1].texts() == ["hi"]
