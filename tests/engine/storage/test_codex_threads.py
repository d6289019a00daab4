"""Threads that codex 0.169 and 0.171 recorded (tests/data) are listed, opened and resumed over each API."""

import shutil
from pathlib import Path

import pytest

from app_server.engine.session.head import TOOLS_GONE
from app_server_protocol.encoding import Json
from app_server_protocol.engine.legacy import COMPACTED
from app_server_protocol.rollout import numbered
from tests.engine.storage.stored import raw_line
from tests.engine.storage.test_codex_openings import lines_of_codex
from tests.server.conversations.test_one_thread_three_apis import INITIALIZE
from tests.support.scripted_model import reply, says, script
from tests.support.thread_client import join, notified, say, start
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

DATA = Path(__file__).parents[2] / "data"
SAID = [
    *("first words", "second words", "third words", "failing words", "after compact", "after revert"),
]
"""Messages of the user in the thread that codex reverted, including those that a compaction replaced."""
ANSWERED = ["I run a command", "first answer", "second answer", "answer after", "answer after revert"]
KINDS, OLDER = "01a222cc-4219-7430-ba00-5b95bab7253a", "01a222cc-852e-7a11-a99e-cfece6843117"
UNREADABLE = {"type": "item_completed", "item": {"type": "CommandExecution", "id": "i"}}


def stored_in(w: World, version: str) -> str:
    """Copy the recorded files to the home; return the id of the thread that was reverted."""
    day = w.home / "sessions" / "2026" / "11" / "28"
    shutil.copytree(DATA / f"codex-{version}", day)
    return next(path.stem[28:64] for path in day.iterdir() if "_" in path.stem)


def file_of(w: World, id: str) -> Path:
    (path,) = w.home.glob(f"sessions/**/rollout-*-{id}.jsonl")
    return path


recorded = pytest.mark.parametrize("version", ["0.169", "0.171"])


@recorded
async def test_threads_of_codex_over_the_conversation_api(world: MakeWorld, version: str) -> None:
    async with world(reply(says("here"))) as w:
        thread = stored_in(w, version)
        listed = (await w.client.call("listConversations", {"modelProviders": [], "pageSize": 50}))["items"]
        assert [each["preview"] for each in listed if each["conversationId"] == thread] == ["first words"]
        resumed = await w.client.resume(
            conversationId=thread,
            overrides={"cwd": str(w.workspace), "model": "scripted", "modelProvider": "scripted"},
        )
        events = resumed["initialMessages"]
        assert [each["message"] for each in events if each["type"] == "user_message"] == SAID
        answers = [each["message"] for each in events if each["type"] == "agent_message"]
        assert answers == [*ANSWERED[:3], COMPACTED, *ANSWERED[3:]]
        await w.client.turn(thread, "go on")
        told = w.model.requests[-1].texts()
        assert {*SAID, "go on"} <= {*told}


@recorded
async def test_threads_of_codex_over_the_agent_client_protocol(world: MakeWorld, version: str) -> None:
    async with world(reply(says("here"))) as w, w.another(acp=True) as editor:
        thread = stored_in(w, version)
        await editor.call("initialize", INITIALIZE)
        listed = (await editor.call("session/list", {}))["sessions"]
        assert [each["cwd"] for each in listed if each["sessionId"] == thread] == ["/work/project"]
        opening = {"sessionId": thread, "cwd": str(w.workspace), "mcpServers": []}
        await editor.call("session/load", opening)
        updates = [m["params"]["update"] for m in editor.received() if m.get("method") == "session/update"]

        def texts(kind: str) -> list[str]:
            return [each["content"]["text"] for each in updates if each["sessionUpdate"] == kind]

        assert texts("user_message_chunk") == SAID
        assert [text for text in texts("agent_message_chunk") if text in ANSWERED] == ANSWERED
        calls = [each for each in updates if each["sessionUpdate"] == "tool_call"]
        assert [each["kind"] for each in calls].count("execute") == 1
        assert [each["kind"] for each in calls].count("edit") == 2
        block: Json = {"type": "text", "text": "go on"}
        prompt = {"sessionId": thread, "prompt": [block]}
        assert (await editor.call("session/prompt", prompt))["stopReason"] == "end_turn"
        assert {*SAID, "go on"} <= {*w.model.requests[-1].texts()}


@recorded
async def test_threads_of_codex_over_the_thread_api(world: MakeWorld, version: str) -> None:
    async with world(reply(says("here"))) as w:
        thread = stored_in(w, version)
        listed = (await w.client.call("thread/list", {"modelProviders": []}))["data"]
        assert [each["historyMode"] for each in listed if each["id"] == thread] == ["paginated"]
        where = {"cwd": str(w.workspace), "modelProvider": "scripted", "model": "scripted"}
        opened = await w.client.call("thread/resume", {"threadId": thread, **where})
        users = [i for turn in opened["thread"]["turns"] for i in turn["items"] if i["type"] == "userMessage"]
        assert [each["content"][0]["text"] for each in users] == SAID
        await say(w.client, thread, "go on")
        assert {*SAID, "go on"} <= {*w.model.requests[-1].texts()}


async def test_lines_that_cannot_be_read_are_one_warning(world: MakeWorld) -> None:
    """The warning is sent when the thread is opened for the first time, also if clients join later."""
    async with world(reply(says("here"))) as w:
        stored_in(w, "0.171")
        path = file_of(w, KINDS)
        with path.open("ab") as file:
            file.writelines([numbered(raw_line("event_msg", UNREADABLE), number) for number in (81, 82)])
        where = {"cwd": str(w.workspace), "modelProvider": "scripted", "model": "scripted"}
        await w.client.call("thread/resume", {"threadId": KINDS, **where})
        await say(w.client, KINDS, "go on")
        await join(w.client, KINDS)
        warned = [each["message"] for each in notified(w, "warning") if "cannot be read" in each["message"]]
        assert len(warned) == 1
        assert warned[0].startswith(f"2 lines of {path} cannot be read")


async def test_a_folder_and_a_link_to_it_have_the_same_threads(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        link = w.root / "link"
        link.symlink_to(w.workspace)
        begun = []
        for cwd in (link, w.workspace):
            started = await w.client.call("thread/start", {"cwd": str(cwd)})
            begun.append(started["thread"]["id"])
            await say(w.client, begun[-1], "words")
        for name in (str(link), str(w.workspace), f"{w.workspace}/../workspace"):
            found = (await w.client.call("thread/list", {"cwd": name}))["data"]
            assert {each["id"] for each in found} == {*begun}, name
        assert (await w.client.call("thread/list", {"cwd": str(w.root)}))["data"] == []


async def test_a_thread_of_the_newest_models_of_codex_goes_on_without_its_tools(world: MakeWorld) -> None:
    """The model is told once that they are gone. A copy of the thread does not mention them either."""
    async with world(*(reply(says(each, each)) for each in "abc")) as w:
        day = w.home / "sessions" / "2026" / "11" / "28"
        day.mkdir(parents=True)
        path = day / f"rollout-2026-11-28T15-24-46-{KINDS}.jsonl"
        path.write_bytes(b"".join(lines_of_codex(KINDS)))
        where = {"cwd": str(w.workspace), "modelProvider": "scripted", "model": "scripted"}
        await w.client.call("thread/resume", {"threadId": KINDS, **where})
        await say(w.client, KINDS, "go on")
        await say(w.client, KINDS, "and on")
        forked = await w.client.call("thread/fork", {"threadId": KINDS, **where})
        await say(w.client, forked["thread"]["id"], "elsewhere")
        for request in w.model.requests:
            parts = [part for item in request.body["input"] for part in item.get("content", ())]
            told = [part["text"] for part in parts if not part["text"].startswith("<environment_context>")]
            assert told[:4] == ["Be brief.", "first words", "go on", TOOLS_GONE]
            assert told.count(TOOLS_GONE) == 1
            assert "multi_agent" not in str(request.body)


async def test_a_thread_whose_tools_are_all_there_says_nothing_of_them(world: MakeWorld) -> None:
    replies = reply(script("true")), reply(says("a")), reply(says("b"))
    async with world(*replies) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        await join(w.client, thread)
        await say(w.client, thread)
        assert TOOLS_GONE not in str(w.model.requests[-1].body)
