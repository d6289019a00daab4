"""Stored conversations: resuming, forking, listing, describing, archiving."""

from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import Hold, begins_to_say, reply, says, script, word
from tests.support.world import MakeWorld

pytestmark = pytest.mark.scenario

NOBODY = "01890000-0000-7000-8000-000000000000"


async def test_a_conversation_goes_on_in_the_next_server(world: MakeWorld) -> None:
    async with world(reply(script("echo hi")), reply(says("one"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
    async with world(reply(says("two"))) as w:
        resumed = await w.client.call("resumeConversation", {"conversationId": conversation})
        assert resumed["conversationId"] == conversation
        told = [(m["type"], m["message"]) for m in resumed["initialMessages"] if "message" in m]
        assert told == [("user_message", "first"), ("agent_message", "one")]
        configured = w.client.received()[-2]
        assert configured["method"] == "sessionConfigured", "it comes before the answer"
        assert configured["params"]["initialMessages"] == resumed["initialMessages"]
        await w.client.listen(conversation)
        await w.client.turn(conversation, "second")
        assert len(w.rollouts()) == 1
    request = w.model.requests[0]
    assert request.texts() == ["first", "second"]
    assert request.texts("assistant") == ["one"]
    assert list(request.outputs()) == ["c1"]


@pytest.mark.parametrize("by", ["path", "conversationId", "history"])
async def test_a_conversation_can_be_named_in_three_ways(world: MakeWorld, by: str) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        await w.client.listen(opened["conversationId"])
        await w.client.turn(opened["conversationId"], "first")
        history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "given"}]}]
        params: Json = {
            "path": opened["rolloutPath"],
            "conversationId": opened["conversationId"],
            "history": history,
        }
        resumed = await w.client.call("resumeConversation", {by: params[by]})
        await w.client.listen(resumed["conversationId"])
        await w.client.turn(resumed["conversationId"], "second")
        assert (resumed["conversationId"] == opened["conversationId"]) is (by != "history")
    assert w.model.requests[1].texts() == ["given" if by == "history" else "first", "second"]


async def test_who_listens_hears_that_a_resume_ended_a_turn(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), word("I am"), Hold()), reply(says("two"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "first")
        await w.client.expect("agent_message_delta")
        await w.client.resume(conversationId=conversation)
        turn = await w.client.turn(conversation, "second")
        assert turn.last_message == "two"
        told = [m["method"].removeprefix("codex/event/") for m in w.client.received() if "method" in m]
    assert told.count("turn_aborted") == 1
    assert told.index("turn_aborted") < told.index("sessionConfigured")
    assert "shutdown_complete" not in told
    assert w.model.requests[1].texts() == ["first", "second"]


async def test_settings_of_a_resumed_conversation_can_be_given(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
        params = {"conversationId": conversation, "overrides": {"model": "another", "cwd": str(w.root)}}
        assert (await w.client.call("resumeConversation", params))["model"] == "another"
        await w.client.listen(conversation)
        await w.client.turn(conversation, "second")
    assert w.model.requests[1].body["model"] == "another"


@pytest.mark.isolated
async def test_a_call_that_was_cut_off_is_answered_when_the_conversation_goes_on(world: MakeWorld) -> None:
    async with world(reply(script("echo begun; sleep 1000"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "first")
        await w.client.expect("exec_command_output_delta")
        await w.client.leave()
    async with world(reply(says("two"))) as w:
        await w.client.resume(conversationId=conversation)
        await w.client.turn(conversation, "second")
    assert w.model.requests[0].texts() == ["first", "second"]
    assert "aborted" in w.model.requests[0].outputs()["c1"]


async def test_conversations_are_listed_newest_first_and_by_pages(world: MakeWorld) -> None:
    async with world(*(reply(says("ok")) for _ in range(3))) as w:
        ids = []
        for n in range(3):
            ids.append(await w.open())
            await w.client.turn(ids[-1], f"about {n}")
        listed: list[Json] = []
        cursor = None
        for _ in range(2):
            page = await w.client.call("listConversations", {"pageSize": 2, "cursor": cursor})
            listed += page["items"]
            cursor = page["nextCursor"]
        assert sorted(item["conversationId"] for item in listed) == sorted(ids)
        assert {item["preview"] for item in listed} == {"about 0", "about 1", "about 2"}
        other = await w.client.call("listConversations", {"modelProviders": ["another"]})
        assert other["items"] == []
        lost = await w.client.call("listConversations", {"cursor": "not-a-cursor", "pageSize": 1})
        assert lost["items"] == listed[:1], "what is no cursor is the beginning"


async def test_a_conversation_is_described_by_id_and_by_path(world: MakeWorld) -> None:
    async with world(reply(says("ok")), git=True) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation, path = opened["conversationId"], opened["rolloutPath"]
        await w.client.listen(conversation)
        await w.client.turn(conversation, "what is this?")
        by_id = await w.client.call("getConversationSummary", {"conversationId": conversation})
        by_path = await w.client.call("getConversationSummary", {"rolloutPath": path})
        assert by_id == by_path
        summary = by_id["summary"]
        assert (summary["preview"], summary["path"]) == ("what is this?", path)
        assert (summary["cwd"], summary["modelProvider"]) == (str(w.workspace), "scripted")
        assert summary["gitInfo"]["branch"] == "main"


async def test_an_archived_conversation_is_ended_and_moved(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation, path = opened["conversationId"], opened["rolloutPath"]
        await w.client.listen(conversation)
        await w.client.turn(conversation)
        content = Path(path).read_text()
        params = {"conversationId": conversation, "rolloutPath": path}
        await w.client.call("archiveConversation", params)
        (archived,) = (w.home / "archived_sessions").glob("*.jsonl")
        assert archived.read_text().startswith(content)
        assert not Path(path).exists()
        assert (await w.client.call("listConversations", {}))["items"] == []
        with pytest.raises(Refused, match="conversation not found"):
            await w.client.say(conversation)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../etc/passwd", "sessions", ""])
async def test_a_path_that_is_not_the_conversations_own_is_not_archived(world: MakeWorld, path: str) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        with pytest.raises(Refused):
            await w.client.call("archiveConversation", {"conversationId": conversation, "rolloutPath": path})
        assert (await w.client.turn(conversation)).last_message == "ok", "it is still open"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "either path, conversation id or non empty history"),
        ({"history": []}, "either path, conversation id or non empty history"),
        ({"conversationId": NOBODY}, "no rollout found for"),
        ({"conversationId": "../../etc/passwd"}, "conversationId"),
        ({"path": "/etc/passwd"}, "."),
        ({"path": "/dev/full"}, "."),
        ({"path": "/no/such/file.jsonl"}, "."),
    ],
)
async def test_what_cannot_be_resumed_is_an_error_that_tells_no_content(
    world: MakeWorld, params: Json, words: str
) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=words) as refused:
            await w.client.call("resumeConversation", params)
        assert "root:" not in refused.value.message
        assert await w.client.call("getUserAgent")
