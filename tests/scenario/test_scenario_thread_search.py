"""Finding threads by what was said in them."""

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says
from tests.support.thread_client import say, start
from tests.support.world import MakeWorld, Transport, World


async def found(w: World, term: str, **params: Json) -> list[tuple[str, str]]:
    """Ids and snippets."""
    page = await w.client.call("thread/search", {"searchTerm": term, **params})
    return [(each["thread"]["id"], each["snippet"]) for each in page["data"]]


@pytest.mark.parametrize("transport", ["memory", pytest.param("process", marks=pytest.mark.process)])
async def test_threads_are_found_by_what_was_said(world: MakeWorld, transport: Transport) -> None:
    replies = (reply(says("The needle is here.")), reply(says("hay")), reply(says("a second Needle")))
    async with world(*replies, transport=transport, initialize=False) as w:
        await w.client.initialize(capabilities={"experimentalApi": True})
        first, second = await start(w.client), await start(w.client)
        await say(w.client, first, "where is it?")
        await say(w.client, second, "and this?")
        assert await found(w, "NEEDLE") == [(first, "where is it? The needle is here.")]
        assert await found(w, "this?") == [(second, "and this? hay")]
        # What is said in a thread that is loaded is found at once.
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
        ({"searchTerm": " "}, "requires search_term"),
        ({"searchTerm": "x" * 2000}, "at most 1024"),
        ({"searchTerm": "x", "cursor": "y"}, "invalid cursor: y"),
        ({"searchTerm": "x", "sortKey": "section_position"}, "sortKey"),
    ],
)
async def test_searches_that_are_refused(world: MakeWorld, params: Json, message: str) -> None:
    async with world(initialize=False) as w:
        await w.client.initialize(capabilities={"experimentalApi": True})
        with pytest.raises(Refused, match=message):
            await w.client.call("thread/search", params)
        assert (await w.client.call("thread/search", {"searchTerm": "x"}))["data"] == []
