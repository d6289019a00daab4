"""`fuzzyFileSearch` for clients of the thread API: once, and in sessions."""

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.world import MakeWorld, World

TREE = {"src/client.py": "", "src/server.py": "", "docs/client/x": ""}
EXPERIMENTAL: Json = {"experimentalApi": True}


def search(w: World, query: str) -> Json:
    return {"query": query, "roots": [str(w.workspace)], "cancellationToken": None}


async def test_who_names_capabilities_is_given_folders_and_kinds(world: MakeWorld) -> None:
    async with world(files=TREE, initialize=False) as w:
        await w.client.initialize(capabilities={})
        found = await w.client.call("fuzzyFileSearch", search(w, "client"))
        assert [(f["path"], f["match_type"], f["file_name"]) for f in found["files"]] == [
            ("docs/client", "directory", "client"),
            ("src/client.py", "file", "client.py"),
            ("docs/client/x", "file", "x"),
        ]
        assert found["files"][1]["indices"] == [4, 5, 6, 7, 8, 9]


async def test_others_are_given_files_also_beside_the_thread_api(world: MakeWorld) -> None:
    async with world(files=TREE) as w:
        for _ in range(2):
            found = await w.client.call("fuzzyFileSearch", search(w, "client"))
            assert [set(f) for f in found["files"]] == [{"root", "path", "file_name", "score", "indices"}] * 2
            await w.client.call("thread/loaded/list", {})


async def test_a_session_tells_what_it_finds_for_each_query(world: MakeWorld) -> None:
    async with world(files=TREE, initialize=False) as w:
        await w.client.initialize(capabilities=EXPERIMENTAL)
        start = {"sessionId": "s", "roots": [str(w.workspace)]}
        assert await w.client.call("fuzzyFileSearch/sessionStart", start) == {}
        first = await w.client.expect("fuzzyFileSearch/sessionUpdated")
        assert first["params"] == {"sessionId": "s", "query": "", "files": []}
        await w.client.expect("fuzzyFileSearch/sessionCompleted")
        for query, best in (("serv", "src/server.py"), ("cli", "src/client.py")):
            update = {"sessionId": "s", "query": query}
            assert await w.client.call("fuzzyFileSearch/sessionUpdate", update) == {}
            found = (await w.client.expect("fuzzyFileSearch/sessionUpdated"))["params"]
            assert (found["query"], found["files"][0]["path"]) == (query, best)
            completed = await w.client.expect("fuzzyFileSearch/sessionCompleted")
            assert completed["params"] == {"sessionId": "s"}
        for _ in range(2):
            assert await w.client.call("fuzzyFileSearch/sessionStop", {"sessionId": "s"}) == {}
        with pytest.raises(Refused, match="fuzzy file search session not found: s"):
            await w.client.call("fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": "x"})


async def test_the_last_query_is_answered_when_many_come(world: MakeWorld) -> None:
    async with world(files=TREE, initialize=False) as w:
        await w.client.initialize(capabilities=EXPERIMENTAL)
        await w.client.call("fuzzyFileSearch/sessionStart", {"sessionId": "s", "roots": [str(w.workspace)]})
        queries = ["c", "cl", "cli", "clie"]
        for query in queries:
            await w.client.send("fuzzyFileSearch/sessionUpdate", {"sessionId": "s", "query": query})
        await w.client.expect(
            lambda m: m.get("method") == "fuzzyFileSearch/sessionUpdated" and m["params"]["query"] == "clie"
        )
        told = [
            m["params"]["query"]
            for m in w.client.received()
            if m.get("method", "").endswith("sessionUpdated")
        ]
        assert told == [query for query in ["", *queries] if query in told], "in their order"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"sessionId": "", "roots": ["/"]}, "sessionId must not be empty"),
        ({"sessionId": "s", "roots": []}, "at least one search directory is required"),
    ],
)
async def test_a_session_needs_a_name_and_a_root(world: MakeWorld, params: Json, text: str) -> None:
    async with world(initialize=False) as w:
        await w.client.initialize(capabilities=EXPERIMENTAL)
        with pytest.raises(Refused, match=text):
            await w.client.call("fuzzyFileSearch/sessionStart", params)
