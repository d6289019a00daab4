"""The thread API over the engine: turns, approvals, interrupts, messages that join a turn, reading, two APIs at
once.
"""

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app_server.engine.storage.stored_conversations import StoredConversations
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.pictures import picture_url
from tests.support.scripted_model import Hold, begins_to_say, reply, says, script, word
from tests.support.thread_client import ended, items, notified, say, start, turn, words
from tests.support.world import EXPERIMENTAL, MakeWorld

pytestmark = pytest.mark.scenario

PNG_DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize(
    ("decision", "status", "made"), [("accept", "completed", True), ("decline", "declined", False)]
)
async def test_a_command_is_asked_about(world: MakeWorld, decision: str, status: str, made: bool) -> None:
    replies = reply(script("echo > made")), reply(says("done"))
    async with world(*replies, config={"approval_policy": "untrusted"}) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread)
        question = await w.client.expect("item/commandExecution/requestApproval")
        assert question["params"]["threadId"] == thread
        waiting = await w.client.call("thread/read", {"threadId": thread})
        assert waiting["thread"]["status"] == {"type": "active", "activeFlags": ["waitingOnApproval"]}
        await w.client.answer(question, {"decision": decision})
        assert (await ended(w.client, id))["status"] == "completed"
        ends = items(w)
        commands = [item for item in ends if item["type"] == "commandExecution"]
        assert [item["status"] for item in commands] == [status]
        resolved = notified(w, "serverRequest/resolved")
        assert resolved == [{"threadId": thread, "requestId": question["id"]}]
        assert (w.workspace / "made").exists() is made


async def test_words_of_a_turn_that_was_ended_before_it_began_are_kept(world: MakeWorld) -> None:
    slow = '[mcp_servers.slow]\ncommand = "sleep"\nargs = ["100"]\nstartup_timeout_sec = 0.5\n'
    async with world(reply(says("a")), tables=slow) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread, "first words")
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        await ended(w.client, await turn(w.client, thread, "second words"))
        assert "first words" in str(w.model.requests[0].body["input"])
        rows = (await w.client.call("thread/items/list", {"threadId": thread, "turnId": id}))["data"]
        assert [row["item"]["content"][0]["text"] for row in rows] == ["first words"]


async def test_words_that_joined_a_turn_which_failed_are_shown_in_it_and_reach_the_model(
    world: MakeWorld,
) -> None:
    hold = Hold()
    fails = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}
    async with world(reply(begins_to_say(), word("a"), hold, fails), reply(says("both"))) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread, "first")
        await w.client.expect("item/agentMessage/delta")
        late = {"threadId": thread, "expectedTurnId": id, "input": words("second")}
        await w.client.call("turn/steer", late)
        hold.release()
        assert (await ended(w.client, id))["status"] == "failed"
        rows = (await w.client.call("thread/items/list", {"threadId": thread, "turnId": id}))["data"]
        said = [row["item"]["content"][0]["text"] for row in rows if row["item"]["type"] == "userMessage"]
        assert said == ["first", "second"]
        await ended(w.client, await turn(w.client, thread, "third"))
    assert w.model.requests[1].texts()[-2:] == ["second", "third"]


async def test_joining_a_thread_shows_the_turn_that_runs(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("half"), hold, says("half and half"))) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread)
        await w.client.expect("item/agentMessage/delta")
        joined = (await w.client.call("thread/resume", {"threadId": thread}))["thread"]
        assert [(each["id"], each["status"]) for each in joined["turns"]] == [(id, "inProgress")]
        assert [item["type"] for item in joined["turns"][0]["items"]] == ["userMessage", "agentMessage"]
        hold.release()
        await ended(w.client, id)
        read = (await w.client.call("thread/read", {"threadId": thread, "includeTurns": True}))["thread"]
        assert read["turns"][0]["items"][-1]["text"] == "half and half"


async def test_a_thread_goes_on_after_a_restart(world: MakeWorld, tmp_path: Path) -> None:
    async with world(reply(says("first"))) as w:
        thread = await start(w.client, approvalPolicy="never", sandbox="read-only")
        first = await turn(w.client, thread)
        await ended(w.client, first)
    async with world(reply(says("second"))) as w:
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert (resumed["approvalPolicy"], resumed["sandbox"]["type"]) == ("never", "readOnly")
        assert [each["id"] for each in resumed["thread"]["turns"]] == [first]
        second = await turn(w.client, thread, "go on")
        await ended(w.client, second)
        listed = await w.client.call("thread/turns/list", {"threadId": thread, "sortDirection": "asc"})
        assert [each["id"] for each in listed["data"]] == [first, second]
    assert w.model.requests[0].texts() == ["hi", "go on"]


async def test_a_resume_brings_the_first_page_of_turns(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:
        thread = await start(w.client)
        turns = []
        for text in ("first", "second"):
            turns.append(await turn(w.client, thread, text))
            await ended(w.client, turns[-1])
    async with world(capabilities=EXPERIMENTAL) as w:
        resumed = await w.client.call(
            "thread/resume",
            {"threadId": thread, "excludeTurns": True, "initialTurnsPage": {"limit": 1, "itemsView": "full"}},
        )
        page = resumed["initialTurnsPage"]
        asked = {"threadId": thread, "limit": 1, "itemsView": "full"}
        assert page == await w.client.call("thread/turns/list", asked)
        assert [each["id"] for each in page["data"]] == turns[-1:]
        older = await w.client.call("thread/turns/list", {"threadId": thread, "cursor": page["nextCursor"]})
        assert [each["id"] for each in older["data"]] == turns[:1]
        again = await w.client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        assert again.get("initialTurnsPage") is None


async def test_threads_are_listed_by_pages(world: MakeWorld) -> None:
    said = ["find the needle", "something else", "a third"]
    async with world(*(reply(says("ok")) for _ in [*said, "more"])) as w:
        threads = [await start(w.client) for _ in said]
        for thread, text in zip(threads, said, strict=True):
            await ended(w.client, await turn(w.client, thread, text))
        unused = await start(w.client)

        async def listed(**params: Json) -> list[str]:
            """Return the ids of all pages with one entry each."""
            found: list[str] = []
            cursor = None
            while True:
                page = await w.client.call("thread/list", {"limit": 1, "cursor": cursor, **params})
                found += [each["preview"] for each in page["data"]]
                cursor = page["nextCursor"]
                if cursor is None:
                    return found

        assert sorted(await listed()) == sorted(said), f"{unused} has no turn"
        await ended(w.client, await turn(w.client, threads[0], "more"))
        assert await listed(sortKey="updated_at") == [said[0], said[2], said[1]]
        assert await listed(sortKey="updated_at", sortDirection="asc") == [said[1], said[2], said[0]]
        assert await listed(searchTerm="NEEDLE") == [said[0]]
        assert await listed(cwd=str(w.workspace), modelProviders=[], sourceKinds=["vscode"], limit=100)
        for nothing in ({"cwd": "/nowhere"}, {"modelProviders": ["other"]}, {"sourceKinds": ["cli"]}):
            assert await listed(**nothing) == []
        assert await listed(archived=True) == []
        for cursor in ("no such cursor", "2026|", f"{'1' * 20}|{threads[0]}"):
            with pytest.raises(Refused, match="invalid cursor"):
                await w.client.call("thread/list", {"cursor": cursor})


@pytest.mark.parametrize(
    ("sent", "preview"),
    [
        (["image"], "[Image]"),
        (["localImage", "localImage"], "[Image]"),
        (["image", "text"], "look"),
        (["localImage", "text"], "look"),
    ],
)
async def test_a_thread_that_begins_with_an_image_has_a_preview(
    world: MakeWorld, sent: list[str], preview: str
) -> None:
    async with world(reply(says("ok")), files={"dot.png": PNG_DOT}) as w:
        parts: dict[str, Json] = {
            "image": {"type": "image", "url": picture_url(PNG_DOT)},
            "localImage": {"type": "localImage", "path": str(w.workspace / "dot.png")},
            "text": {"type": "text", "text": "look"},
        }
        thread = await start(w.client)
        await say(w.client, thread, input=[parts[each] for each in sent])
        assert (await w.client.call("thread/read", {"threadId": thread}))["thread"]["preview"] == preview
        assert [each["preview"] for each in (await w.client.call("thread/list", {}))["data"]] == [preview]


@pytest.mark.parametrize("begun_by", ["turn/start", "sendUserMessage"])
async def test_of_two_apis_the_one_that_began_the_turn_is_asked(world: MakeWorld, begun_by: str) -> None:
    replies = reply(script("echo > made")), reply(says("done"))
    questions = {
        "turn/start": ("item/commandExecution/requestApproval", "accept"),
        "sendUserMessage": ("execCommandApproval", "approved"),
    }
    async with world(*replies, config={"approval_policy": "untrusted"}) as w:
        thread = await start(w.client)
        await w.client.listen(thread)
        for method, (asks, decision) in questions.items():
            w.client.decide(asks, decision if method == begun_by else "decline")
        if begun_by == "turn/start":
            await turn(w.client, thread)
        else:
            await w.client.say(thread, "hi")
        await w.client.expect("turn/completed")
        await w.client.anywhere("task_complete")
        asked = [m["method"] for m in w.client.received() if "id" in m and "method" in m]
        assert asked == [questions[begun_by][0]]
        assert (w.workspace / "made").exists()
        ends = [
            m["params"]["item"]["type"] for m in w.client.received() if m.get("method") == "item/completed"
        ]
        assert ends == ["userMessage", "commandExecution", "agentMessage"]
        assert len(w.client.events("exec_command_end")) == len(w.client.events("agent_message")) == 1


async def test_each_turn_is_asked_about_over_the_api_that_began_it(world: MakeWorld) -> None:
    replies = [
        each for name in "abc" for each in (reply(script(f"echo > {name}", name)), reply(says("done")))
    ]
    over_threads, over_conversations = "item/commandExecution/requestApproval", "execCommandApproval"
    async with world(*replies, config={"approval_policy": "untrusted"}) as w:
        w.client.decide(over_threads, "decline")
        w.client.decide(over_conversations, "denied")
        thread = await start(w.client)
        await w.client.listen(thread)
        for begin in (turn(w.client, thread), w.client.say(thread, "hi"), turn(w.client, thread)):
            await begin
            await w.client.expect("turn/completed")
            await w.client.anywhere("task_complete")
        asked = [m["method"] for m in w.client.received() if "id" in m and "method" in m]
    assert asked == [over_threads, over_conversations, over_threads]


async def test_a_new_thread_is_shown_without_reading_its_file(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_back = (
        "id",
        "createdAt",
        "gitInfo",
        "source",
        "cliVersion",
        "originator",
        "path",
        "cwd",
        "modelProvider",
    )
    async with world(reply(says("ok"))) as w:
        with monkeypatch.context() as patched:
            patched.setattr(StoredConversations, "summary", None)
            patched.setattr(StoredConversations, "find", None)
            begun = (await w.client.call("thread/start", {"cwd": str(w.workspace)}))["thread"]
        await say(w.client, begun["id"])
        stored = (await w.client.call("thread/read", {"threadId": begun["id"]}))["thread"]
    assert {name: begun[name] for name in read_back} == {name: stored[name] for name in read_back}


async def test_a_fork_that_fails_lets_its_file_go(world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(stored: object, writer: RolloutWriter) -> None:
        copies.append(writer)
        raise RolloutUnreadable("it is gone")

    copies: list[RolloutWriter] = []
    monkeypatch.setattr("app_server.engine.storage.rollout_reader.copy_lines", unreadable)
    async with world(reply(says("hello"))) as w:
        thread = await start(w.client)
        await ended(w.client, await turn(w.client, thread))
        with pytest.raises(Refused, match="it is gone"):
            await w.client.call("thread/fork", {"threadId": thread})
        RolloutWriter.resume(copies[0].path, lambda: datetime.now(UTC)).close()
