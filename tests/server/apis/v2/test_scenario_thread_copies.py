"""Threads that begin as copies, threads that are reverted to an earlier turn, and threads that are not stored."""

import errno
import os
from pathlib import Path

import pytest

from app_server.engine.storage.rollout_names import journal_path
from app_server.engine.storage.stored_conversations import StoredConversations
from app_server.engine.storage.thread_summary import MetadataStore
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server_protocol.encoding import Json
from tests.support.client import Client, Refused
from tests.support.scripted_model import Hold, begins_to_say, reply, says, script, word
from tests.support.thread_client import ended, items, notified, say, start, told_of, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

UNKNOWN = "01990000-0000-7000-8000-000000000000"


async def stored(client: Client, thread: str) -> list[Json]:
    read = await client.call("thread/read", {"threadId": thread, "includeTurns": True})
    turns: list[Json] = read["thread"]["turns"]
    return turns


async def talk(w: World, *texts: str) -> tuple[str, list[str]]:
    thread = await start(w.client)
    return thread, [await say(w.client, thread, text) for text in texts]


def said(turns: list[Json]) -> list[str]:
    return [item["content"][0]["text"] for each in turns for item in each["items"] if "content" in item]


async def test_a_fork_has_the_turns_and_both_go_on(world: MakeWorld) -> None:
    replies = reply(script("echo hi")), reply(says("one")), reply(says("two")), reply(says("three"))
    async with world(*replies) as w:
        thread, (first,) = await talk(w, "first")
        fork = (await w.client.call("thread/fork", {"threadId": thread}))["thread"]
        assert (fork["forkedFromId"], fork["preview"]) == (thread, "first")
        assert fork["turns"] == await stored(w.client, thread)
        assert [each["id"] for each in fork["turns"]] == [first]
        began = await w.client.expect("thread/started")
        assert (began["params"]["thread"]["id"], began["params"]["thread"]["turns"]) == (fork["id"], [])
        await say(w.client, fork["id"], "in the fork")
        await say(w.client, thread, "in the original")
        assert said(await stored(w.client, fork["id"])) == ["first", "in the fork"]
        assert said(await stored(w.client, thread)) == ["first", "in the original"]
        listed = (await w.client.call("thread/list", {}))["data"]
        assert {each["forkedFromId"] for each in listed} == {thread, None}
    assert w.model.requests[2].texts() == ["first", "in the fork"]
    assert list(w.model.requests[2].outputs()) == ["c1"]
    assert w.model.requests[3].texts() == ["first", "in the original"]


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_fork_has_the_name(world: MakeWorld, ephemeral: bool) -> None:
    async with world(reply(says("one")), capabilities=EXPERIMENTAL) as w:
        thread, _ = await talk(w, "first")
        await w.client.call("thread/name/set", {"threadId": thread, "name": "Named"})
        params = {"threadId": thread, "ephemeral": ephemeral, "excludeTurns": True}
        fork = (await w.client.call("thread/fork", params))["thread"]
        began = await w.client.expect("thread/started")
        read = (await w.client.call("thread/read", {"threadId": fork["id"]}))["thread"]
        assert [each["name"] for each in (fork, began["params"]["thread"], read)] == ["Named"] * 3
        await w.client.call("thread/name/set", {"threadId": thread, "name": "Renamed"})
        listed = (await w.client.call("thread/list", {}))["data"]
        names = {each["id"]: each["name"] for each in listed}
        assert names == ({thread: "Renamed"} if ephemeral else {thread: "Renamed", fork["id"]: "Named"})


async def test_a_fork_whose_name_cannot_be_written_goes_on_without(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:
        thread, _ = await talk(w, "first")
        await w.client.call("thread/name/set", {"threadId": thread, "name": "Named"})

        def refuse(notes: MetadataStore, id: str, name: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(MetadataStore, "set_name", refuse)
        fork = (await w.client.call("thread/fork", {"threadId": thread}))["thread"]
        assert fork["name"] is None
        await say(w.client, fork["id"], "in the fork")


@pytest.mark.parametrize(("field", "left"), [("lastTurnId", ["1", "2"]), ("beforeTurnId", ["1"])])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_fork_at_a_turn(world: MakeWorld, field: str, left: list[str], restart: bool) -> None:
    async def cut(w: World, thread: str, turns: list[str]) -> None:
        params = {"threadId": thread, field: turns[1]}
        fork = (await w.client.call("thread/fork", params))["thread"]
        assert said(fork["turns"]) == left
        await say(w.client, fork["id"], "else")
        assert w.model.requests[-1].texts() == [*left, "else"]

    replies = [reply(says(text)) for text in "abc"]
    async with world(*replies, reply(says("d")), capabilities=EXPERIMENTAL) as w:
        thread, turns = await talk(w, "1", "2", "3")
        if not restart:
            await cut(w, thread, turns)
    if restart:
        async with world(reply(says("d")), capabilities=EXPERIMENTAL) as w:
            await cut(w, thread, turns)


async def test_a_fork_of_a_turn_of_the_other_api(world: MakeWorld) -> None:
    """Its file names no turns, and has the user's message before the event of the message."""
    async with world(*(reply(says(text)) for text in "abc")) as w:
        conversation = await w.open()
        for text in "123":
            await w.client.turn(conversation, text)
    async with world(reply(says("d"))) as w:
        turns = await stored(w.client, conversation)
        assert said(turns) == ["1", "2", "3"]
        params = {"threadId": conversation, "lastTurnId": turns[0]["id"]}
        fork = (await w.client.call("thread/fork", params))["thread"]
        assert said(fork["turns"]) == ["1"]
        await say(w.client, fork["id"], "else")
    assert w.model.requests[0].texts() == ["1", "else"]


async def test_a_running_turn_is_interrupted_in_the_copy(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("a b")), reply(says("c"))) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread, "first")
        await w.client.expect("item/agentMessage/delta")
        fork = (await w.client.call("thread/fork", {"threadId": thread}))["thread"]
        assert [(each["id"], each["status"]) for each in fork["turns"]] == [(id, "interrupted")]
        with pytest.raises(Refused, match=f"lastTurnId '{id}' identifies an in-progress turn"):
            await w.client.call("thread/fork", {"threadId": thread, "lastTurnId": id})
        hold.release()
        assert (await ended(w.client, id))["status"] == "completed"
        await say(w.client, fork["id"], "else")
        assert [each["status"] for each in await stored(w.client, fork["id"])] == ["interrupted", "completed"]


async def test_a_fork_with_settings_of_its_own(world: MakeWorld) -> None:
    async with world(reply(says("a"))) as w:
        thread, _ = await talk(w, "1")
        params = {"threadId": thread, "model": "other", "excludeTurns": True, "sandbox": "read-only"}
        fork = await w.client.call("thread/fork", params)
        assert (fork["model"], fork["sandbox"]["type"], fork["thread"]["turns"]) == ("other", "readOnly", [])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lastTurnId": UNKNOWN}, f"turn not found: {UNKNOWN}"),
        ({"beforeTurnId": UNKNOWN}, f"turn not found: {UNKNOWN}"),
        ({"beforeTurnId": "a", "lastTurnId": "b"}, "`beforeTurnId` cannot be combined with `lastTurnId`"),
        ({"ephemeral": True}, "requires `excludeTurns: true`"),
        ({"threadId": UNKNOWN}, f"no rollout found for thread id {UNKNOWN}"),
        ({"path": "/none/such"}, "/none/such: no such file"),
    ],
)
async def test_forks_that_are_refused(world: MakeWorld, params: Json, message: str) -> None:
    async with world(reply(says("a")), capabilities=EXPERIMENTAL) as w:
        thread, _ = await talk(w, "1")
        with pytest.raises(Refused, match=message):
            await w.client.call("thread/fork", {"threadId": thread, **params})


async def test_a_thread_is_taken_back_and_stays_so(world: MakeWorld) -> None:
    replies = [reply(says(text)) for text in "abcdef"]
    async with world(*replies[:4]) as w:
        thread, turns = await talk(w, "1", "2", "3")
        answer = await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[1]})
        assert answer["thread"]["status"] == {"type": "idle"}
        assert (await w.client.expect("thread/reverted"))["params"] == {"threadId": thread}
        assert said(await stored(w.client, thread)) == ["1"]
        page = {"threadId": thread, "cursor": answer["turnsBackwardsCursor"], "sortDirection": "desc"}
        listed = await w.client.call("thread/turns/list", page)
        assert [each["id"] for each in listed["data"]] == [turns[0]]
        await say(w.client, thread, "2, differently")
        await w.client.call("thread/loaded/list", {})  # all notifications of the turn have arrived
        states = [m["status"]["type"] for m in notified(w, "thread/status/changed")]
        assert states[-4:] == ["notLoaded", "idle", "active", "idle"]
        assert w.model.requests[3].texts() == ["1", "2, differently"]
        assert w.model.requests[3].texts("assistant") == ["a"]
    async with world(reply(says("e")), reply(says("f"))) as w:
        assert said(await stored(w.client, thread)) == ["1", "2, differently"]
        fork = (await w.client.call("thread/fork", {"threadId": thread}))["thread"]
        assert said(fork["turns"]) == ["1", "2, differently"]
        resumed = await w.client.call("resumeConversation", {"conversationId": thread})
        told = [m["message"] for m in resumed["initialMessages"] if m["type"] == "user_message"]
        assert told == ["1", "2, differently"]
        await w.client.listen(thread)
        await w.client.turn(thread, "3")
        await say(w.client, fork["id"], "3")
    for request in w.model.requests:
        assert request.texts() == ["1", "2, differently", "3"]


async def test_a_thread_is_taken_back_again_and_again(world: MakeWorld) -> None:
    async with world(*(reply(says(text)) for text in "abcdef")) as w:
        thread, turns = await talk(w, "1", "2")
        await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[1]})
        with pytest.raises(Refused, match=f"turn not found: {turns[1]}"):
            await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[1]})
        await say(w.client, thread, "3")
        await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[0]})
        assert await stored(w.client, thread) == []
        await say(w.client, thread, "4")
        assert said(await stored(w.client, thread)) == ["4"]
    assert w.model.requests[-1].texts() == ["4"]


async def test_a_running_turn_is_taken_back(world: MakeWorld) -> None:
    hold = Hold()
    replies = reply(says("a")), reply(begins_to_say(), word("b"), hold), reply(says("c"))
    async with world(*replies) as w:
        thread, _ = await talk(w, "1")
        id = await turn(w.client, thread, "2", model="other", effort="high")
        await w.client.expect("item/agentMessage/delta")
        await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        await say(w.client, thread, "3")
        hold.release()
    assert w.model.requests[-1].texts() == ["1", "3"]
    assert w.model.requests[-1].body["model"] == "other", "settings are not taken back"


@pytest.mark.parametrize("method", ["thread/revert", "thread/fork"])
async def test_a_thread_that_cannot_be_read_as_it_is_opened_is_not_left_open(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Otherwise it would be shown without its turns, and others could begin turns in it without any notification."""

    async def failing(*_: object, **_options: object) -> None:
        raise RolloutUnreadable("input/output error")

    async with world(reply(says("a"))) as w:
        thread, turns = await talk(w, "1")
        monkeypatch.setattr(StoredConversations, "turns", failing)
        cut = {"beforeTurnId": turns[0]} if method == "thread/revert" else {}
        with pytest.raises(Refused, match="input/output error"):
            await w.client.call(method, {"threadId": thread, **cut})
        left = (await w.client.call("thread/loaded/list", {}))["data"]
        assert left == ([] if method == "thread/revert" else [thread])


async def test_who_let_go_of_a_thread_is_not_subscribed_by_taking_it_back(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        thread, turns = await talk(w, "1")
        await w.client.call("thread/unsubscribe", {"threadId": thread})
        await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[0]})
        again = await w.client.call("thread/unsubscribe", {"threadId": thread})
        assert again == {"status": "notSubscribed"}


async def test_ids_that_a_provider_repeats_stay_unique(world: MakeWorld) -> None:
    """They stay unique after a restart, in a copy, and if the first item was reverted."""

    async def unique(w: World, thread: str, count: int) -> None:
        listed = await w.client.call("thread/items/list", {"threadId": thread})
        ids = [entry["item"]["id"] for entry in listed["data"]]
        assert len(set(ids)) == count
        assert items(w)[-1]["id"] == ids[-1], "live as it is read"

    async with world(reply(says("a")), reply(says("b"))) as w:
        thread, turns = await talk(w, "1")
        await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[0]})
        await say(w.client, thread, "2")
        assert [item["id"] for item in items(w) if item["type"] == "agentMessage"] == ["msg-1", "msg-1-2"]
        await unique(w, thread, 2)
    async with world(reply(says("c")), reply(says("d"))) as w:
        await w.client.call("thread/resume", {"threadId": thread})
        await say(w.client, thread, "3")
        await unique(w, thread, 4)
        fork = (await w.client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        await say(w.client, fork, "4")
        await unique(w, fork, 6)


async def test_usage_goes_on_where_it_was(world: MakeWorld) -> None:
    async def told(w: World) -> tuple[str, int]:
        (*_, last) = notified(w, "thread/tokenUsage/updated")
        return last["turnId"], last["tokenUsage"]["total"]["totalTokens"]

    async with world(reply(says("a"))) as w:
        thread, (first,) = await talk(w, "1")
    async with world(reply(says("b"))) as w:
        await w.client.call("thread/resume", {"threadId": thread})
        await w.client.expect("thread/tokenUsage/updated")
        assert await told(w) == (first, 15)
        second = await say(w.client, thread, "2")
        assert await told(w) == (second, 30)
        await w.client.call("thread/fork", {"threadId": thread})
        await w.client.expect("thread/tokenUsage/updated")
        assert await told(w) == (second, 30)


async def test_a_thread_that_is_not_stored(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("a summary")), reply(says("b"))) as w:
        thread = await start(w.client, ephemeral=True)
        await say(w.client, thread, "forget me")
        read = (await w.client.call("thread/read", {"threadId": thread}))["thread"]
        assert (read["ephemeral"], read["path"], read["preview"]) == (True, None, "forget me")
        assert (await w.client.call("thread/loaded/list", {}))["data"] == [thread]
        assert (await w.client.call("thread/list", {}))["data"] == []
        await w.client.call("thread/compact/start", {"threadId": thread})
        await told_of(w.client, "contextCompaction")
        await w.client.expect("turn/completed")
        await say(w.client, thread, "more")
        assert items(w)[-1]["text"] == "b"
        assert list((w.home).rglob("*.jsonl*")) == []
    async with world() as w:
        with pytest.raises(Refused, match=f"no rollout found for thread id {thread}"):
            await w.client.call("thread/resume", {"threadId": thread})


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("thread/read", {"includeTurns": True}, "ephemeral threads do not support includeTurns"),
        ("thread/turns/list", {}, "ephemeral threads do not support thread/turns/list"),
        ("thread/resume", {}, "no rollout found for thread id"),
        ("thread/fork", {}, "no rollout found for thread id"),
        ("thread/archive", {}, "no rollout found for thread id"),
        ("thread/revert", {"beforeTurnId": UNKNOWN}, "ephemeral threads do not support thread/revert"),
        ("thread/name/set", {"name": "n"}, "ephemeral thread does not support metadata updates"),
    ],
)
async def test_what_a_thread_that_is_not_stored_cannot_do(
    world: MakeWorld, method: str, params: Json, message: str
) -> None:
    async with world() as w:
        thread = await start(w.client, ephemeral=True)
        with pytest.raises(Refused, match=message):
            await w.client.call(method, {"threadId": thread, **params})


async def test_a_copy_that_is_not_stored(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        thread, _ = await talk(w, "1")
        params = {"threadId": thread, "ephemeral": True, "excludeTurns": True}
        fork = (await w.client.call("thread/fork", params))["thread"]
        assert (fork["ephemeral"], fork["path"], fork["forkedFromId"], fork["preview"]) == (
            *(True, None, thread),
            "1",
        )
        await say(w.client, fork["id"], "2")
        assert w.model.requests[-1].texts() == ["1", "2"]
        assert len(w.rollouts()) == 1


async def test_a_file_of_another_home_is_copied_by_its_path(world: MakeWorld, tmp_path: Path) -> None:
    async with world(reply(says("a")), reply(says("b")), capabilities=EXPERIMENTAL) as w:
        thread, turns = await talk(w, "1", "2")
        (path,) = w.rollouts()
        moved = tmp_path / path.name
        moved.write_bytes(path.read_bytes())
        params = {"threadId": UNKNOWN, "path": str(moved), "lastTurnId": turns[0]}
        fork = (await w.client.call("thread/fork", params))["thread"]
        assert (said(fork["turns"]), fork["forkedFromId"]) == (["1"], thread)
        before = w.rollouts()
        w.write({"notes.txt": "secret words"})
        with pytest.raises(Refused) as refused:
            await w.client.call("thread/fork", {**params, "path": str(w.workspace / "notes.txt")})
        assert "secret" not in refused.value.message
        assert w.rollouts() == before


async def test_a_fork_has_what_a_crash_left_beside_the_file(world: MakeWorld) -> None:
    async with world(reply(says("one"))) as w:
        thread, _ = await talk(w, "first")
    [path] = w.rollouts()
    item = '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"told"}]}'
    head = f'{{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item","after":{path.stat().st_size},"payload":'
    journal_path(path).write_text(f"{head}{item}}}\n")
    async with world(reply(says("two"))) as w:
        fork = (await w.client.call("thread/fork", {"threadId": thread}))["thread"]
        await say(w.client, fork["id"], "second")
        journal_path(path).unlink()
    assert w.model.requests[0].texts("assistant") == ["one", "told"]
