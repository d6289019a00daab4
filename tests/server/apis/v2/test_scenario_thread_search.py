"""Searches in stored threads that are streamed or cancelled."""

import threading
from collections.abc import Iterator

import pytest

from app_server.engine.storage import thread_listing
from app_server.server.apis.v2.handlers import thread_search
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says
from tests.support.thread_client import heard, talk
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

COUNT = 10


async def threads(w: World) -> list[str]:
    return [await talk(w.client, f"needle {n}") for n in range(COUNT)]


def ids(data: Json) -> list[str]:
    return [each["thread"]["id"] for each in data]


async def test_a_quick_search_is_answered_as_a_whole(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_search, "QUICK_SECONDS", 1000.0)
    async with world(*[reply(says("hay"))] * COUNT, capabilities=EXPERIMENTAL) as w:
        made = await threads(w)
        page = await w.client.call("thread/search/stream", {"searchTerm": "NEEDLE", "limit": 9})
        assert ids(page["data"]) == made[:0:-1]
        usual = await w.client.call("thread/search", {"searchTerm": "NEEDLE", "limit": 9})
        assert page == usual
        rest = await w.client.call(
            "thread/search/stream", {"searchTerm": "needle", "cursor": page["nextCursor"]}
        )
        assert ids(rest["data"]) == made[:1]
        assert rest["nextCursor"] is None
        assert heard(w.client, "thread/search/partial") == []


async def test_a_slow_search_tells_what_it_finds_first(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_search, "QUICK_SECONDS", -1.0)
    async with world(*[reply(says("hay"))] * COUNT, capabilities=EXPERIMENTAL) as w:
        made = await threads(w)
        page = await w.client.call("thread/search/stream", {"searchTerm": "needle"})
        assert ids(page["data"]) == made[::-1]
        partial = heard(w.client, "thread/search/partial")
        assert len({each["requestId"] for each in partial}) == 1
        assert [id for each in partial for id in ids(each["data"])] == made[:1:-1], "each is told once"
        kinds = [m.get("method", "answer") for m in w.client.received()]
        assert kinds.index("thread/search/partial") < len(kinds) - 1
        await w.client.call("thread/search", {"searchTerm": "needle"})
        assert len(heard(w.client, "thread/search/partial")) == len(partial)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let no search end after its first part, until the event is set."""
    whole, go_on, count = thread_listing.ThreadLists.search, threading.Event(), [0]

    def search(self: thread_listing.ThreadLists, *arguments: Json) -> Json:
        count[0] += 1
        if count[0] > 1:
            go_on.wait(20)
        return whole(self, *arguments)

    monkeypatch.setattr(thread_listing.ThreadLists, "search", search)
    yield go_on
    go_on.set()


@pytest.mark.parametrize("method", ["thread/search/cancel", "thread/search/stream/cancel"])
async def test_a_search_that_is_cancelled_ends_with_what_it_has_found(
    world: MakeWorld, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(thread_search, "QUICK_SECONDS", -1.0)
    async with world(*[reply(says("hay"))] * COUNT, capabilities=EXPERIMENTAL) as w:
        made = await threads(w)
        search = await w.client.send("thread/search/stream", {"searchTerm": "needle"})
        partial = (await w.client.expect("thread/search/partial"))["params"]
        assert partial["requestId"] == search
        assert await w.client.call(method, {"requestId": 123_456}) == {}
        assert await w.client.call(method, {"requestId": search}) == {}
        page = (await w.client.answer_to(search))["result"]
        assert ids(page["data"]) == made[:-2:-1]
        stuck.set()
        assert await w.client.call(method, {"requestId": search}) == {}
        rest = await w.client.call(
            "thread/search/stream", {"searchTerm": "needle", "cursor": page["nextCursor"]}
        )
        assert ids(rest["data"]) == made[-2::-1]


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({}, -32600, "missing field `searchTerm`"),
        ({"searchTerm": " \n"}, -32600, "thread/search requires a non-empty searchTerm"),
        (
            {"searchTerm": "ä" * 32_769},
            -32602,
            "thread/search/stream searchTerm exceeds 65536 UTF-8 bytes",
        ),
        ({"searchTerm": "x", "cursor": "y"}, -32600, "invalid cursor: y"),
    ],
)
async def test_streamed_searches_that_are_refused(
    world: MakeWorld, params: Json, code: int, message: str
) -> None:
    async with world(capabilities=EXPERIMENTAL) as w:
        error = (await w.client.ask("thread/search/stream", params))["error"]
        assert (error["code"], message in error["message"]) == (code, True)
        longest = {"searchTerm": " " + "x" * 65_536}
        assert (await w.client.call("thread/search/stream", longest))["data"] == []


async def test_streamed_searches_are_experimental(world: MakeWorld) -> None:
    async with world(capabilities={}) as w:
        for method in ("thread/search/stream", "thread/search/cancel", "thread/search/stream/cancel"):
            with pytest.raises(Refused, match="experimentalApi"):
                await w.client.call(method, {"searchTerm": "x", "requestId": 1})
