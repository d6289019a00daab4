"""The page's server: who is let in, what sessions look like over HTTP, and what is kept of them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from app_server.inspector.page_server import Guard
from app_server.inspector.session_records import SessionHead, read_session
from app_server.inspector.store import EntryStore
from protocol.structs import Json
from tests.unit.inspector.recorded_turn import HEAD, TURN_WITH_APPROVAL, analysed, as_file

pytest.importorskip("starlette")
page_server = pytest.importorskip("app_server.inspector.page_server")
shown_sessions = pytest.importorskip("app_server.inspector.page_server")

GUARD = Guard("the-token", 4711)
PAGE = f"http://127.0.0.1:{GUARD.port}/{GUARD.token}/"


def recorded() -> EntryStore:
    store = EntryStore(HEAD)
    store.add(analysed(TURN_WITH_APPROVAL))
    store.end()
    return store


@asynccontextmanager
async def page(store: EntryStore | None = None, *command: str) -> AsyncIterator[httpx.AsyncClient]:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            sessions = shown_sessions.ShownSessions(store or recorded(), command, None)
            transport = httpx.ASGITransport(page_server.page_app(sessions, GUARD, group))
            async with httpx.AsyncClient(transport=transport, base_url=PAGE) as client:
                yield client


async def rows(client: httpx.AsyncClient, number: int = 0, after: int = 0) -> list[Json]:
    """All events of a session that ends."""
    text = (await client.get(f"sessions/{number}/events", params={"after": after})).text
    told = [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")
    ]
    assert told[-1] == {"end": True}
    return [row for each in told[:-1] for row in each["rows"]]


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


async def test_a_session_is_streamed_from_any_place() -> None:
    async with page() as client:
        found = await rows(client)
        assert [row["n"] for row in found] == list(range(len(TURN_WITH_APPROVAL)))
        assert found[3]["latency"] == 10.0
        assert [row["n"] for row in await rows(client, after=17)] == [17, 18]


async def test_entries_that_are_not_kept_are_counted() -> None:
    store = EntryStore(HEAD, most=5)
    store.add(analysed(TURN_WITH_APPROVAL))
    store.end()
    async with page(store) as client:
        text = (await client.get("sessions/0/events")).text
        assert f'"gap":{len(TURN_WITH_APPROVAL) - 5}' in text
        assert len(await rows(client)) == 5
        assert (await client.get("sessions/0/entries/0")).status_code == 404
        assert (await client.get("sessions/0/file")).text.count("\n") == 6


async def test_a_saved_session_can_be_opened() -> None:
    async with page() as client:
        saved = await client.get("sessions/0/file")
        assert "attachment" in saved.headers["content-disposition"]
        assert "sk-abc" not in saved.text
        assert read_session(saved.text)[1] == read_session(as_file(TURN_WITH_APPROVAL))[1]
        number = (await client.post("sessions?name=mine", content=saved.content)).json()["session"]
        assert (await client.get(f"sessions/{number}")).json()["name"] == "mine"
        opened, first = await rows(client, number), await rows(client)
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
        for path, status in (
            (f"sessions/0/events?after={number}", 400),
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


async def test_a_replay_needs_a_server() -> None:
    async with page() as client:
        assert (await client.get("sessions/0")).json()["canReplay"] is False
        assert (await client.post("sessions/0/replay")).status_code == 409


async def test_a_session_is_exported_as_a_test() -> None:
    async with page() as client:
        answer = await client.get("sessions/0/test")
        assert "def test_the_session_goes_as_it_was_recorded" in answer.text


async def test_what_comes_later_is_streamed_too() -> None:
    store = EntryStore(SessionHead((), ""))
    entries = analysed(TURN_WITH_APPROVAL)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            waited = []

            async def reader() -> None:
                number = 0
                while await store.wait(number):
                    _, found = store.after(number)
                    number += len(found)
                    waited.extend(found)

            group.start_soon(reader)
            for entry in entries:
                store.add([entry])
                await anyio.lowlevel.checkpoint()
            store.end()
    assert waited == entries
