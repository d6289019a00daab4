"""The page's server: access, sessions over HTTP, and what it keeps of them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from app_server.cli.inspect.line_store import EntryStore
from app_server.cli.inspect.session_records import SessionHead, read_session
from app_server_protocol.encoding import Json
from tests.cli.inspect.recorded_turn import HEAD, TURN_WITH_APPROVAL, analysed, as_file

pytest.importorskip("starlette")
page_api = pytest.importorskip("app_server.cli.inspect.page_api")
page_server = pytest.importorskip("app_server.cli.inspect.page_server")

GUARD = page_server.Guard("the-token", 4711)
PAGE = f"http://127.0.0.1:{GUARD.port}/{GUARD.token}/"


def recorded() -> EntryStore:
    store = EntryStore(HEAD)
    store.add(analysed(TURN_WITH_APPROVAL))
    store.end()
    return store


@asynccontextmanager
async def page(store: EntryStore | None = None, *command: str) -> AsyncIterator[httpx2.AsyncClient]:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            sessions = page_api.ShownSessions(store or recorded(), command, None)
            transport = httpx2.ASGITransport(page_server.page_app(sessions, GUARD, group))
            async with httpx2.AsyncClient(transport=transport, base_url=PAGE) as client:
                yield client


async def opened_view(client: httpx2.AsyncClient, number: int = 0, **filter: Json) -> str:
    """Return the address of a list."""
    view = (await client.post(f"sessions/{number}/views", json=filter)).json()["view"]
    return f"sessions/{number}/views/{view}"


async def rows(client: httpx2.AsyncClient, number: int = 0, **filter: Json) -> list[Json]:
    """Return all rows of a session, without folded ones."""
    view = await opened_view(client, number, fold=False, **filter)
    return [line["row"] for line in (await client.get(f"{view}/lines?from=0&count=200")).json()["lines"]]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/the-token/", {}, 200),
        ("/the-token/main.js", {"origin": "http://localhost:4711", "host": "localhost:4711"}, 200),
        ("/the-token/", {"sec-fetch-site": "same-origin"}, 200),
        ("/", {}, 403),
        ("/wrong/", {}, 403),
        ("/the-token-and-more/", {}, 403),
        ("/main.js", {}, 403),
        ("/the-token/", {"host": "rebound.example:4711"}, 403),
        ("/the-token/", {"host": "127.0.0.1:80"}, 403),
        ("/the-token/", {"origin": "http://other.example"}, 403),
        ("/the-token/", {"origin": "null"}, 403),
        ("/the-token/", {"origin": "http://127.0.0.1:80"}, 403),
        ("/the-token/", {"sec-fetch-site": "cross-site"}, 403),
        ("/the-token/../pyproject.toml", {}, 403),
        ("/the-token/%2e%2e/page_server.py", {}, 404),
    ],
)
async def test_only_the_page_itself_is_let_in(path: str, headers: dict[str, str], status: int) -> None:
    async with page() as client:
        answer = await client.get(f"http://127.0.0.1:{GUARD.port}{path}", headers=headers)
        assert answer.status_code == status
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert answer.headers["cache-control"] == "no-store"


async def test_the_bundle_names_nothing_from_elsewhere() -> None:
    for file in Path(page_server.BUNDLE).iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, file
        assert "//cdn" not in text, file


async def test_a_list_is_given_in_parts() -> None:
    async with page() as client:
        view = await opened_view(client, fold=False)
        told = (await client.get(f"{view}/lines?from=17&count=1")).json()
        assert (told["first"], told["total"]) == (0, len(TURN_WITH_APPROVAL))
        assert [line["row"]["n"] for line in told["lines"]] == [17]
        assert (await rows(client))[3]["latency"] == 10.0


async def test_deltas_are_one_line_until_they_are_unfolded() -> None:
    async with page() as client:
        view = await opened_view(client)
        [folded] = [
            line
            for line in (await client.get(f"{view}/lines?from=0&count=200")).json()["lines"]
            if line["times"] > 1
        ]
        assert (folded["n"], folded["last"], folded["times"], len(folded["more"])) == (13, 15, 3, 2)
        assert (await client.get(f"{view}/place?entry=15")).json() == {"line": 13}
        unfolded = (await client.post(f"{view}/toggle?line=13")).json()
        assert unfolded == {"line": 13, "total": len(TURN_WITH_APPROVAL)}
        again = (await client.post(f"{view}/toggle?line=14")).json()
        assert again == {"line": 13, "total": len(TURN_WITH_APPROVAL) - 2}


async def test_entries_that_are_not_kept_are_counted() -> None:
    store = EntryStore(HEAD, most=5)
    store.add(analysed(TURN_WITH_APPROVAL))
    store.end()
    async with page(store) as client:
        assert [row["n"] for row in await rows(client)] == [14, 15, 16, 17, 18]
        assert (await client.get("sessions/0/entries/0")).status_code == 404
        assert (await client.get("sessions/0/file")).text.count("\n") == 6


async def test_a_message_is_given_whole_with_its_other_side() -> None:
    async with page() as client:
        asked = (await client.get("sessions/0/entries/8")).json()
        assert asked["row"]["method"] == "item/commandExecution/requestApproval"
        assert (asked["partner"], asked["open"]) == ({"n": 9, "at": 90.0}, False)
        assert (await client.get("sessions/0/entries/9")).json()["partner"]["n"] == 8
        assert (await client.get("sessions/0/entries/5")).json()["partner"] is None


async def test_a_session_tells_of_itself_and_becomes_a_test() -> None:
    async with page() as client:
        assert (await client.get("sessions/0/turn")).json()["totals"]["question"] == 10.0
        assert (await client.get("sessions/0/turn?turn=none")).json() is None
        of_one = (await client.get("sessions/0/entries/17/test")).text
        assert "expected={'method': 'turn/completed'" in of_one
        of_all = (await client.get("sessions/0/test")).text
        assert "def test_the_session_goes_as_it_was_recorded" in of_all
        assert "sk-abc" not in of_one + of_all
        assert (await client.get("sessions/0/entries/99/test")).status_code == 409
        assert (await client.get("sessions/0")).json()["canReplay"] is False
        assert (await client.post("sessions/0/replay")).status_code == 409


async def test_a_filter_of_no_known_shape_is_refused() -> None:
    async with page() as client:
        for filter in (b"[]", b'{"text":1}', b"{", b'{"fold":"yes"}'):
            assert (await client.post("sessions/0/views", content=filter)).status_code == 400
        assert (await client.post("sessions/0/views", content=b" " * 70_000)).status_code == 413


async def test_lists_that_nobody_looks_at_make_room() -> None:
    async with page() as client:
        first = await opened_view(client)
        others = [await opened_view(client) for _ in range(40)]
        assert (await client.get(f"{first}/lines?from=0&count=1")).status_code == 404
        assert (await client.get(f"{others[-1]}/lines?from=0&count=1")).status_code == 200


async def test_a_saved_session_can_be_opened() -> None:
    async with page() as client:
        saved = await client.get("sessions/0/file")
        assert "attachment" in saved.headers["content-disposition"]
        assert "sk-abc" not in saved.text
        assert read_session(saved.text)[1] == read_session(as_file(TURN_WITH_APPROVAL))[1]
        number = (await client.post("sessions?name=mine", content=saved.content)).json()["session"]
        assert (await client.get(f"sessions/{number}")).json()["name"] == "mine"
        while len(opened := await rows(client, number)) < len(TURN_WITH_APPROVAL):
            await anyio.lowlevel.checkpoint()  # the analysis runs
        first = await rows(client)
        assert [json.loads(row["text"]) for row in opened] == [json.loads(row["text"]) for row in first]


async def test_a_file_that_is_no_session_is_refused() -> None:
    async with page() as client:
        answer = await client.post("sessions", content=b"hello")
        assert answer.status_code == 400
        assert "first line" in answer.json()["error"]
        assert (await client.get("sessions/7")).status_code == 404


@pytest.mark.parametrize("number", ["9" * 5000, "x", "-1"])
async def test_what_is_no_number_is_refused(number: str) -> None:
    async with page() as client:
        view = await opened_view(client)
        for path, status in (
            (f"sessions/0/views/{number}/lines?from=0&count=1", 404),
            (f"{view}/lines?from={number}&count=1", 400),
            (f"sessions/0/entries/{number}", 404),
            (f"sessions/{number}/file", 404),
        ):
            answer = await client.get(path)
            assert (answer.status_code, list(answer.json())) == (status, ["error"])


@pytest.mark.parametrize(
    "head",
    [
        "[" * 100_000,
        '{"format":"app-server-session","version":"\\ud800"}',
        '{"format":"app-server-session","version":' + "9" * 5000 + "}",
    ],
)
async def test_odd_heads_of_sessions_are_refused(head: str) -> None:
    async with page() as client:
        answer = await client.post("sessions", content=head.encode())
        assert answer.status_code == 400
        assert "first line" in answer.json()["error"]


async def test_a_head_that_is_no_unicode_is_shown() -> None:
    head = '{"format":"app-server-session","version":1,"server":["\\ud800"],"began":"\\ud800"}\n'
    async with page() as client:
        number = (await client.post("sessions", content=head.encode())).json()["session"]
        assert (await client.get(f"sessions/{number}")).json()["server"] == ["?"]
        assert (await client.get(f"sessions/{number}/test")).status_code == 200


async def test_what_comes_is_streamed_until_nobody_looks(tmp_path: Path) -> None:
    """A real server streams them. Its open stream shows that the page is open."""
    store = EntryStore(SessionHead((), ""))
    entries = analysed(TURN_WITH_APPROVAL)
    sessions = page_api.ShownSessions(store, (), None)
    known, left = anyio.Event(), anyio.Event()

    async def until() -> None:
        known.set()
        await left.wait()
        await sessions.until_nobody_follows()

    async def look() -> None:
        await known.wait()
        async with httpx2.AsyncClient(base_url=(tmp_path / "url").read_text().strip(), timeout=20) as client:
            view = await opened_view(client)
            async with client.stream("GET", f"{view}/events") as stream:
                lines = stream.aiter_lines()
                assert (await news(lines))["total"] == 0
                store.add(entries[:9])
                assert (await news(lines))["questions"] == [8]
                store.add(entries[9:])
                last = await news(lines)
                assert (last["questions"], last["total"], last["ended"]) == ([], len(entries) - 2, False)
                store.end()
                assert (await news(lines))["ended"] is True
                left.set()
                assert (await client.get(f"{view}/lines?from=0&count=1")).status_code == 200

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(look)
            await page_server.serve_page(sessions, str(tmp_path / "url"), until)


async def news(lines: AsyncIterator[str]) -> dict[str, Json]:
    """Return the next event of a stream."""
    async for line in lines:
        if line.startswith("data: "):
            told: dict[str, Json] = json.loads(line.removeprefix("data: "))
            return told
    raise AssertionError("the stream ended")
