"""Requirements of existing clients of the thread API, one test for each: starting, resuming, settings, lists, shapes,
bounds of lines, bytes.
"""

import json

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import calls, done, patches, reply, says, script
from tests.support.thread_client import ended, items, notified, say, start, talk, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


def methods(w: World) -> list[str]:
    return [m["method"] for m in w.client.received() if "method" in m]


async def test_a_thread_that_was_never_used_can_be_resumed(world: MakeWorld) -> None:
    """One client resumes a thread before every turn, the first one included."""
    async with world(reply(says("a"))) as w:
        thread = await start(w.client)
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert (resumed["thread"]["id"], resumed["thread"]["turns"]) == (thread, [])
        await ended(w.client, await turn(w.client, thread))


async def test_what_clients_ask_at_their_start_needs_no_network(world: MakeWorld) -> None:
    """Clients cannot start without these answers, and send all these requests at once."""
    nowhere = {"base_url": "http://127.0.0.1:9/v1"}
    questions = ("account/read", "config/read", "permissionProfile/list", "configRequirements/read")
    async with world(provider=nowhere) as w:
        ids = [await w.client.send(method, {}) for method in (*questions, "model/list")]
        with anyio.fail_after(10):
            answers = [await w.client.answer_to(id) for id in ids]
        assert all("result" in answer for answer in answers)
        assert answers[2]["result"]["data"][0]["id"] == ":read-only"
        assert "model" in answers[1]["result"]["config"]


async def test_a_bridge_can_replay_a_thread_and_follow_its_settings(world: MakeWorld) -> None:
    """It pages through turns and items, and shows the possible answers and the place where the server keeps its
    files.
    """
    replies = reply(script("echo > made")), reply(says("b"))
    capable = {"experimentalApi": True}
    async with world(*replies, config={"approval_policy": "untrusted"}, initialize=False) as w:
        hello = await w.client.initialize(capabilities=capable)
        assert hello["codexHome"] == str(w.home)
        thread = await start(w.client)
        id = await turn(w.client, thread)
        question = await w.client.expect("item/commandExecution/requestApproval")
        offered = question["params"]["availableDecisions"]
        assert "accept" in offered
        assert {"decline", "cancel"} & {each for each in offered if isinstance(each, str)}
        await w.client.answer(question, {"decision": "accept"})
        await ended(w.client, id)
        turns = (await w.client.call("thread/turns/list", {"threadId": thread, "itemsView": "full"}))["data"]
        rows = (await w.client.call("thread/items/list", {"threadId": thread}))["data"]
        assert [item["id"] for item in turns[0]["items"]] == [row["item"]["id"] for row in rows]
        await w.client.call("thread/settings/update", {"threadId": thread, "model": "another"})
        changed = await w.client.expect("thread/settings/updated")
        assert changed["params"]["threadSettings"]["model"] == "another"
        assert [method for method in methods(w) if method.startswith("codex/")] == [], "of the other API"


async def test_an_answer_follows_the_schema_that_was_given_for_the_turn(world: MakeWorld) -> None:
    """The schema holds for that turn only; opting out of a notification does not affect others."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    opted = {"optOutNotificationMethods": ["thread/tokenUsage/updated", "no/such/method"]}
    async with world(reply(says("{}")), reply(says("b")), capabilities=opted) as w:
        thread = await start(w.client)
        await say(w.client, thread, outputSchema=schema)
        await ended(w.client, await turn(w.client, thread))
        first, second = (request.body for request in w.model.requests)
        assert first["text"]["format"]["schema"] == schema
        assert "format" not in (second.get("text") or {})
        assert "thread/tokenUsage/updated" not in methods(w)
        assert methods(w).count("turn/completed") == 2


async def test_the_log_is_quiet_and_need_not_be_read(world: MakeWorld) -> None:
    """One client shows each line of stderr as a pop-up."""
    loud = reply(script("echo to-stderr >&2; exit 3")), reply(says("a"))
    async with world(*loud, transport="process") as w:
        await talk(w.client)
    assert (w.root / "server.log").read_text(encoding="utf-8") == ""


async def test_goals_and_skills_can_be_asked_about_before_they_are_used(world: MakeWorld) -> None:
    """Clients request both when they open a thread, and show the plan of the model meanwhile."""
    plan = calls("update_plan", {"plan": [{"step": "one", "status": "in_progress"}]})
    async with world(reply(plan), reply(says("a"))) as w:
        thread = await talk(w.client)
        assert await w.client.call("thread/goal/get", {"threadId": thread}) == {"goal": None}
        [here] = (await w.client.call("skills/list", {"cwds": [str(w.workspace)]}))["data"]
        assert (here["skills"], here["errors"]) == ([], [])
        [told] = notified(w, "turn/plan/updated")
        assert told["plan"] == [{"step": "one", "status": "inProgress"}]


@pytest.mark.parametrize(
    "capabilities",
    [
        {"elicitation": {"form": None, "url": None}},
        {"elicitation": None, "experimentalApi": None, "optOutNotificationMethods": None},
        {
            "elicitation": "yes",
            "experimentalApi": "yes",
            "optOutNotificationMethods": {"thread/tokenUsage/updated": True},
        },
        {
            "optOutNotificationMethods": ["thread/tokenUsage/updated", 7],
            "requestAttestation": 1,
            "extensions": 5,
        },
        ["experimentalApi"],
        True,
    ],
)
async def test_capabilities_of_any_shape_are_taken(world: MakeWorld, capabilities: Json) -> None:
    """A capability of another server has no effect here; known and well-formed ones still hold."""
    async with world(reply(says("a")), initialize=False) as w:
        assert "userAgent" in await w.client.initialize(capabilities=capabilities)
        refused = await w.client.ask("collaborationMode/list", {})
        assert "requires experimentalApi capability" in refused["error"]["message"]
        await ended(w.client, await turn(w.client, await start(w.client)))
        named = capabilities.get("optOutNotificationMethods") if isinstance(capabilities, dict) else None
        assert ("thread/tokenUsage/updated" in methods(w)) == (not isinstance(named, list))


LINE = 64 * 1024
"""Default line limit of a reader of asyncio, in bytes."""


async def test_fields_without_a_value_are_there_as_null(world: MakeWorld) -> None:
    """Clients that parse strictly drop a message without them, and then wait for ever."""
    async with world(reply(script("true")), reply(says("a"))) as w:
        id = await turn(w.client, await start(w.client))
        done = await ended(w.client, id)
        assert done["error"] is None
        assert items(w, kind="agentMessage")[0]["phase"] is None
        begun = items(w, "item/started", kind="commandExecution")[0]
        for name in ("processId", "aggregatedOutput", "exitCode", "durationMs"):
            assert begun[name] is None
        assert items(w, kind="userMessage")[0]["content"][0]["text_elements"] == []
        assert "modelContextWindow" in notified(w, "thread/tokenUsage/updated")[0]["tokenUsage"]


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
    """Clients send prompts of hundreds of kilobytes, and fields of future versions, everywhere."""
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
        id = await turn(w.client, begun["thread"]["id"], input=input, future="x")
        assert (await ended(w.client, id))["status"] == "completed"
        assert text in w.model.requests[0].body["input"][-1]["content"][0]["text"]


async def test_an_unknown_method_is_refused_in_both_phrases_and_briefly(world: MakeWorld) -> None:
    """One client tolerates `unknown variant`, another `Method not found`; a list of all methods would name `login`."""
    async with world() as w:
        with pytest.raises(Refused) as refused:
            await w.client.call("thread/some/new/method", {})
        assert "unknown variant `thread/some/new/method`" in refused.value.message
        assert "Method not found" in refused.value.message
        assert len(refused.value.message) < 200
        assert (refused.value.code, refused.value.data["kind"]) == (-32600, "unknown_method")


async def test_a_patch_is_shown_before_and_after_it_was_written(world: MakeWorld) -> None:
    """Clients show the changes of the item; its question does not repeat them."""
    patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    async with world(reply(patches(patch)), reply(says("a")), config={"approval_policy": "untrusted"}) as w:
        id = await turn(w.client, await start(w.client))
        question = await w.client.expect("item/fileChange/requestApproval")
        begun = items(w, "item/started", kind="fileChange")[0]
        assert question["params"]["itemId"] == begun["id"]
        [change] = begun["changes"]
        assert (change["path"], change["kind"]["type"]) == (str(w.workspace / "new.txt"), "add")
        await w.client.answer(question, {"decision": "accept"})
        await ended(w.client, id)
        assert items(w, kind="fileChange")[0]["status"] == "completed"


async def test_the_input_of_a_turn_comes_back_as_it_was_sent(world: MakeWorld) -> None:
    """It has the ranges that the client shows in a form of its own, live and from the file, and the id that the client
    gave it. By this id the client finds its own message among the items.
    """
    element = {"byteRange": {"start": 4, "end": 10}, "placeholder": "@a.txt"}
    sent = {"type": "text", "text": "see @a.txt", "text_elements": [element]}
    async with world(reply(says("a"))) as w:
        thread = await start(w.client)
        await say(w.client, thread, input=[sent], clientUserMessageId="mine-1")
        shown = items(w, kind="userMessage")[0]
        assert (shown["content"], shown["clientId"]) == ([sent], "mine-1")
        assert w.model.requests[0].texts() == ["see @a.txt"]
    async with world() as w:
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert read["thread"]["turns"][0]["items"][0]["content"] == [sent]


async def test_a_commentary_is_no_answer(world: MakeWorld) -> None:
    """Clients take the message that `turn/completed` names as the answer of the turn."""

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
    """Clients continue an interrupted turn that way; no message of the user is shown."""
    async with world(reply(says("one")), reply(says("two"))) as w:
        thread = await start(w.client)
        await ended(w.client, await turn(w.client, thread))
        done_turn = await ended(w.client, await turn(w.client, thread, input=[]))
        assert (done_turn["status"], done_turn["items"][0]["text"]) == ("completed", "two")
        assert [item["type"] for item in items(w)] == ["userMessage", "agentMessage", "agentMessage"]
        assert w.model.requests[1].texts() == ["hi"]
