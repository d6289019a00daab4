"""Stored threads: names, metadata, the archive, deletion, search, and unloading."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.engine.storage.stored_conversations import StoredConversations
from app_server.engine.storage.thread_summary import NAMES_FILE
from app_server.server.conversations import idle
from app_server.server.conversations.live import LiveConversation
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says, script
from tests.support.thread_client import ended, notified, say, start, talk, told_of, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, Transport, World

pytestmark = pytest.mark.scenario

UNKNOWN = "01990000-0000-7000-8000-000000000000"


async def listed(w: World, **params: Json) -> list[Json]:
    found: list[Json] = (await w.client.call("thread/list", params))["data"]
    return found


def told(w: World, thread: str, since: int = 0) -> list[Json]:
    """Return the messages about the thread as a whole and the ends of its turns; True stands for a response."""
    lines: list[Json] = []
    for message in w.client.received()[since:]:
        method = message.get("method")
        if method is None:
            lines.append(True)
        elif method == "thread/status/changed":
            lines.append(message["params"]["status"]["type"])
        elif method == "turn/completed" or (method.startswith("thread/") and "tokenUsage" not in method):
            assert message["params"]["threadId"] == thread
            lines.append(method)
    return lines


async def test_a_list_may_be_limited_to_some_threads(world: MakeWorld) -> None:
    async with world(reply(says("hello")), reply(says("hello")), reply(says("hello"))) as w:
        first, second, third = [await talk(w.client, f"words {n}") for n in range(3)]
        some = [third, first.upper(), third, UNKNOWN]
        assert [each["id"] for each in await listed(w, includedThreadIds=some)] == [third, first]
        assert [
            each["id"] for each in await listed(w, includedThreadIds=some, excludedThreadIds=[third])
        ] == [first]
        assert await listed(w, includedThreadIds=some, cwd="/elsewhere") == []
        assert await listed(w, includedThreadIds=[]) == []
        assert len(await listed(w, includedThreadIds=None)) == 3
        for wrong, message in (
            ([UNKNOWN] * 101, "includedThreadIds accepts at most 100 entries"),
            (["nope"], "invalid included thread id: 'nope'"),
        ):
            with pytest.raises(Refused, match=message) as refused:
                await listed(w, includedThreadIds=wrong)
            assert refused.value.code == -32602
    assert second not in (first, third)


async def test_a_name_is_shown_everywhere(world: MakeWorld) -> None:
    async with world(reply(says("hello")), reply(says("hello"))) as w:
        thread, other = await talk(w.client, "first words"), await talk(w.client, "second words")
        await w.client.call("thread/loaded/list", {})  # all notifications of the turns have arrived
        since = len(w.client.received())
        await w.client.call("thread/name/set", {"threadId": thread.upper(), "name": "  My name "})
        updated = await w.client.expect("thread/name/updated")
        assert updated["params"] == {"threadId": thread, "threadName": "My name"}
        assert told(w, thread, since) == [True, "thread/name/updated"]
        for method in ("thread/read", "thread/resume"):
            assert (await w.client.call(method, {"threadId": thread}))["thread"]["name"] == "My name"
        assert {each["id"]: each["name"] for each in await listed(w)} == {thread: "My name", other: None}
        assert [each["id"] for each in await listed(w, searchTerm="y NAME")] == [thread]
        assert [each["id"] for each in await listed(w, searchTerm="words")] == [other, thread]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"threadId": UNKNOWN, "name": "x"}, f"no rollout found for thread id {UNKNOWN}"),
        ({"threadId": "x", "name": "x"}, "invalid thread id"),
        ({"threadId": UNKNOWN, "name": " \n"}, "thread name must not be empty"),
        ({"threadId": UNKNOWN, "name": "x" * 5000}, "at most 4096 characters"),
    ],
)
async def test_names_that_are_refused(world: MakeWorld, params: Json, message: str) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=message):
            await w.client.call("thread/name/set", params)
        assert not (w.home / NAMES_FILE).exists()


async def test_metadata_replaces_fields_one_by_one(world: MakeWorld) -> None:
    async with world(reply(says("hello"))) as w:
        thread = await talk(w.client)

        async def update(**git: Json) -> Json:
            params = {"threadId": thread, "gitInfo": git}
            return (await w.client.call("thread/metadata/update", params))["thread"]["gitInfo"]

        assert await update(branch="topic", sha=" abc ") == {
            "sha": "abc",
            "branch": "topic",
            "originUrl": None,
        }
        assert await update(branch=None) == {"sha": "abc", "branch": None, "originUrl": None}
        refused: list[Json] = [{"gitInfo": {}}, {"gitInfo": None}, {}, {"gitInfo": {"sha": " "}}]
        for wrong in refused:
            with pytest.raises(Refused, match=r"at least one field|must not be empty"):
                await w.client.call("thread/metadata/update", {"threadId": thread, **wrong})
        await w.client.call("thread/archive", {"threadId": thread})
        assert await update(originUrl="https://example.com") == {
            "sha": "abc",
            "branch": None,
            "originUrl": "https://example.com",
        }


async def test_metadata_of_a_thread_that_is_not_stored(world: MakeWorld) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=f"no rollout found for thread id {UNKNOWN}"):
            await w.client.call("thread/metadata/update", {"threadId": UNKNOWN, "gitInfo": {"branch": "x"}})


@pytest.mark.parametrize("step", ["turns", "summary"])
@pytest.mark.parametrize("end", ["archive", "delete"])
async def test_a_thread_that_is_moved_while_it_is_read_is_shown_from_where_it_is_then(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, step: str, end: str
) -> None:
    async with world(reply(says("hello"))) as w, w.another() as other:
        thread = await talk(w.client)
        reads = getattr(StoredConversations, step)

        async def is_moved_first(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(StoredConversations, step, reads)
            await other.call(f"thread/{end}", {"threadId": thread})
            return await reads(*arguments, **options)

        monkeypatch.setattr(StoredConversations, step, is_moved_first)
        reading: Json = {"threadId": thread, "includeTurns": True}
        if end == "delete":
            with pytest.raises(Refused, match="not loaded"):
                await w.client.call("thread/read", reading)
            return
        shown = (await w.client.call("thread/read", reading))["thread"]
        assert shown["preview"] == "hi"
        assert [each["status"] for each in shown["turns"]] == ["completed"]
        assert Path(shown["path"]).is_file()


async def test_the_archive_and_back(world: MakeWorld) -> None:
    async with world(reply(says("hello"))) as w:
        thread = await talk(w.client)
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.expect("thread/archived")
        assert await listed(w) == []
        [archived] = await listed(w, archived=True)
        assert (archived["id"], archived["status"]) == (thread, {"type": "notLoaded"})
        assert (await w.client.call("thread/read", {"threadId": thread}))["thread"] == archived
        with pytest.raises(Refused, match=f"no rollout found for thread id {thread}"):
            await w.client.call("thread/archive", {"threadId": thread})
        with pytest.raises(Refused, match=f"{thread} is archived"):
            await w.client.call("thread/resume", {"threadId": thread})
        back = (await w.client.call("thread/unarchive", {"threadId": thread}))["thread"]
        await w.client.expect("thread/unarchived")
        assert [path.name for path in w.rollouts()] == [back["path"].rsplit("/", 1)[1]]
        with pytest.raises(Refused, match=f"no archived rollout found for thread id {thread}"):
            await w.client.call("thread/unarchive", {"threadId": thread})
        await w.client.call("thread/resume", {"threadId": thread})
        assert (await w.client.call("thread/loaded/list"))["data"] == [thread]


@pytest.mark.parametrize(("method", "done"), [("archive", "archived"), ("delete", "deleted")])
async def test_a_turn_that_runs_ends_first(world: MakeWorld, method: str, done: str) -> None:
    async with world(reply(script("sleep 60")), reply(says("never"))) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread)
        await told_of(w.client, "commandExecution", "item/started")
        since = len(w.client.received())
        await w.client.call(f"thread/{method}", {"threadId": thread})
        end = await ended(w.client, id)
        assert end["status"] == "interrupted"
        await w.client.expect(f"thread/{done}")
        assert told(w, thread, since) == ["turn/completed", "idle", "notLoaded", True, f"thread/{done}"]
        assert (await w.client.call("thread/loaded/list"))["data"] == []
        with pytest.raises(Refused, match="thread not found"):
            await turn(w.client, thread)


async def test_a_deleted_thread_leaves_nothing(world: MakeWorld) -> None:
    async with world(reply(says("hello")), reply(says("hello"))) as w:
        thread, archived = await talk(w.client), await talk(w.client)
        await w.client.call("thread/name/set", {"threadId": thread, "name": "secret"})
        await w.client.call("thread/archive", {"threadId": archived})
        for each in (thread, archived):
            await w.client.call("thread/delete", {"threadId": each})
            with pytest.raises(Refused, match=f"no rollout found for thread id {each}"):
                await w.client.call("thread/delete", {"threadId": each})
        assert (await listed(w), await listed(w, archived=True)) == ([], [])
        assert list(w.home.rglob("*rollout-*")) == []
        assert "secret" not in (w.home / NAMES_FILE).read_text()


async def test_a_thread_before_its_first_turn(world: MakeWorld) -> None:
    async with world() as w:
        one, two = await start(w.client), await start(w.client)
        await w.client.call("thread/name/set", {"threadId": one, "name": "early"})
        assert (await w.client.call("thread/read", {"threadId": one}))["thread"]["name"] == "early"
        await w.client.call("thread/archive", {"threadId": one})
        await w.client.call("thread/delete", {"threadId": two})
        assert w.rollouts() == []


async def test_a_thread_is_resumed_by_its_file_whatever_id_is_named(world: MakeWorld) -> None:
    async with world(reply(says("hello")), capabilities=EXPERIMENTAL) as w:
        thread = await talk(w.client)
        path = (await w.client.call("thread/read", {"threadId": thread}))["thread"]["path"]
        for id in ("", "ignored", UNKNOWN):
            resumed = await w.client.call("thread/resume", {"threadId": id, "path": path})
            assert resumed["thread"]["id"] == thread
        absent = path.replace(thread, UNKNOWN)
        with pytest.raises(Refused, match=f"no rollout found for thread id {UNKNOWN}"):
            await w.client.call("thread/resume", {"threadId": thread, "path": absent})
        with pytest.raises(Refused, match=f"stale path: requested `/no/such`, active `{path}`"):
            await w.client.call("thread/resume", {"threadId": thread, "path": "/no/such"})


async def test_a_thread_begins_with_the_history_that_is_given(world: MakeWorld) -> None:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "long ago"}]}
    async with world(reply(says("one")), reply(says("two")), capabilities=EXPERIMENTAL) as w:
        thread = await talk(w.client)
        resume = {"threadId": thread, "history": [said]}
        with pytest.raises(Refused, match="with history while it is already running"):
            await w.client.call("thread/resume", resume)
        await w.client.call("thread/archive", {"threadId": thread})
        for wrong, text in (
            ([], "history must not be empty"),
            ([5], "history.0. is not a valid response item"),
        ):
            with pytest.raises(Refused, match=text):
                await w.client.call("thread/resume", {**resume, "history": wrong})
        begun = (await w.client.call("thread/resume", resume))["thread"]
        assert begun["id"] != thread
        await ended(w.client, await turn(w.client, begun["id"], "now"))
        assert w.model.requests[-1].texts() == ["long ago", "now"]


async def test_a_list_by_originators_is_refused(world: MakeWorld) -> None:
    async with world() as w:
        assert (await w.client.call("thread/list", {"originators": []}))["data"] == []
        with pytest.raises(Refused, match="originator filtering is not supported"):
            await w.client.call("thread/list", {"originators": ["editor"]})


async def test_a_client_cannot_choose_the_id_of_a_new_thread(world: MakeWorld) -> None:
    async with world() as w:
        await start(w.client, threadId=None)
        with pytest.raises(Refused, match="a new thread gets its own id"):
            await w.client.call("thread/start", {"threadId": UNKNOWN})


@pytest.mark.parametrize("field", ["parentThreadId", "ancestorThreadId"])
async def test_no_thread_is_listed_as_begun_by_another(world: MakeWorld, field: str) -> None:
    async with world(reply(says("hello")), capabilities=EXPERIMENTAL) as w:
        thread = await talk(w.client)
        assert await listed(w, **{field: thread}) == []
        assert [each["id"] for each in await listed(w, **{field: None})] == [thread]


async def test_folders_that_no_disk_has(world: MakeWorld) -> None:
    long = "/" + "x" * 300
    async with world(reply(says("fine"))) as w:
        with pytest.raises(Refused, match="valid Unicode text"):
            await w.client.call("thread/list", {"cwd": ["/", "\ud800"]})
        thread = (await w.client.call("thread/start", {"cwd": long}))["thread"]
        await say(w.client, thread["id"], "words")
        assert [each["cwd"] for each in await listed(w, cwd=long)] == [long]
        assert (await w.client.call("skills/list", {"cwds": [long]}))["data"][0]["cwd"] == long


async def found(w: World, term: str, **params: Json) -> list[tuple[str, str]]:
    """Return the ids and snippets of the threads that the search finds."""
    page = await w.client.call("thread/search", {"searchTerm": term, **params})
    return [(each["thread"]["id"], each["snippet"]) for each in page["data"]]


@pytest.mark.parametrize("transport", ["memory", pytest.param("process", marks=pytest.mark.process)])
async def test_threads_are_found_by_what_was_said(world: MakeWorld, transport: Transport) -> None:
    replies = (reply(says("The needle is here.")), reply(says("hay")), reply(says("a second Needle")))
    async with world(*replies, transport=transport, capabilities=EXPERIMENTAL) as w:
        first, second = await start(w.client), await start(w.client)
        await say(w.client, first, "where is it?")
        await say(w.client, second, "and this?")
        assert await found(w, "NEEDLE") == [(first, "where is it? The needle is here.")]
        assert await found(w, "this?") == [(second, "and this? hay")]
        # A message in a loaded thread is found at once.
        await say(w.client, second, "more?")
        assert [id for id, _ in await found(w, "needle")] == [second, first]
        assert [id for id, _ in await found(w, "needle", sortKey="updated_at", sortDirection="asc")] == [
            first,
            second,
        ]
        page = await w.client.call("thread/search", {"searchTerm": "needle", "limit": 1})
        [rest] = await found(w, "needle", cursor=page["nextCursor"])
        assert [page["data"][0]["thread"]["status"], rest[0]] == [{"type": "idle"}, first]
        await w.client.call("thread/archive", {"threadId": first})
        assert [id for id, _ in await found(w, "needle")] == [second]
        assert [id for id, _ in await found(w, "needle", archived=True)] == [first]
        assert await found(w, "needle", sourceKinds=["exec"]) == []
        await w.client.call("thread/name/set", {"threadId": second, "name": "My thread"})
        assert await found(w, "my thr") == [(second, "My thread")]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "missing field `searchTerm`"),
        ({"searchTerm": " "}, "requires a non-empty searchTerm"),
        ({"searchTerm": "x" * 2000}, "at most 1024"),
        ({"searchTerm": "x", "cursor": "y"}, "invalid cursor: y"),
        ({"searchTerm": "x", "sortKey": "section_position"}, "sortKey"),
    ],
)
async def test_searches_that_are_refused(world: MakeWorld, params: Json, message: str) -> None:
    async with world(capabilities=EXPERIMENTAL) as w:
        with pytest.raises(Refused, match=message):
            await w.client.call("thread/search", params)
        assert (await w.client.call("thread/search", {"searchTerm": "x"}))["data"] == []


async def test_who_resumes_a_thread_that_is_being_unloaded_gets_it_loaded_anew(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, may_end = anyio.Event(), anyio.Event()
    shut_down = LiveConversation.shut_down

    async def slow(live: LiveConversation) -> None:
        live.ending = True
        ends.set()
        await may_end.wait()
        await shut_down(live)

    async with world(reply(says("one")), reply(says("two"))) as w:
        thread, other = await start(w.client), await start(w.client)
        await say(w.client, thread, "first")
        await w.client.call("thread/unsubscribe", {"threadId": thread})
        await w.client.call(
            "thread/name/set", {"threadId": thread, "name": "x"}
        )  # it begins after that request
        monkeypatch.setattr(idle, "MOST_IDLE", 0)
        monkeypatch.setattr(LiveConversation, "shut_down", slow)
        await w.client.call("thread/unsubscribe", {"threadId": other})
        await ends.wait()
        request = await w.client.send("thread/resume", {"threadId": thread})
        await w.client.call("thread/loaded/list", {})  # then the request before has begun, too
        may_end.set()
        resumed = (await w.client.answer_to(request))["result"]
        assert [each["items"][0]["content"][0]["text"] for each in resumed["thread"]["turns"]] == ["first"]
        assert {"threadId": thread} in notified(w, "thread/closed")
        await say(w.client, thread, "second")
    assert w.model.requests[-1].texts() == ["first", "second"]


async def test_a_thread_is_not_unloaded_before_its_client_is_subscribed(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "MOST_IDLE", 1)
    monkeypatch.setattr(idle, "NO_ROOM", 2)
    async with world(*(reply(says("hello")) for _ in range(12))) as w:
        params = {"cwd": str(w.workspace)}
        requests = [await w.client.send("thread/start", params) for _ in range(12)]
        opened = [(await w.client.answer_to(request))["result"]["thread"]["id"] for request in requests]
        for thread in opened:
            await say(w.client, thread, "hi")
        assert notified(w, "thread/closed") == []
