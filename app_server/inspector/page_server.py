"""The page's server: files of the page, sessions as streams of events, and what the page can do with a session.

Everything is below `/TOKEN/`, so what the page loads has the token by itself, and there is no cookie that another page
could use. A name that was made to point at this machine does not pass for `Host`, nor another page for `Origin`. A
session has a number: 0 is the one that passes through, others were opened or are replays.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app_server.inspector.analysis import Analyzer
from app_server.inspector.scenario import as_test, steps_of
from app_server.inspector.session_records import NotASession, Record, SessionHead, read_session, session_lines
from app_server.inspector.session_replay import replay
from app_server.inspector.store import EntryStore

MOST_OPENED = 16
"""Sessions besides the first; the oldest makes room."""
PIECE = 500
"""Records that are analysed before others get a turn."""


class ShownSessions:
    def __init__(
        self, first: EntryStore, command: Sequence[str], environment: Mapping[str, str] | None
    ) -> None:
        """Show a session. `command` and `environment` are what a replay starts; without a command there are none."""
        self._stores = {0: first}
        self._command, self._environment = command, environment
        self._last = 0

    @property
    def can_replay(self) -> bool:
        return bool(self._command)

    def store(self, number: int) -> EntryStore | None:
        return self._stores.get(number)

    def open(self, text: str, name: str, group: TaskGroup) -> int:
        """Open a session that a file describes; return its number. Raises NotASession."""
        head, records = read_session(text)
        store = EntryStore(head, name)
        group.start_soon(fill, store, records, name="open a session")
        return self._add(store)

    def replay(self, recorded: EntryStore, group: TaskGroup) -> int:
        """Begin a replay; its number. Raises ValueError where there is nothing to be played, or no server."""
        steps = steps_of(entry.record for entry in recorded.all())
        if not self._command:
            raise ValueError("no server was named; as in `app-server inspect --open FILE -- SERVER ARG...`")
        if not steps:
            raise ValueError("the client said nothing in this session")
        store = EntryStore(SessionHead(self._command, recorded.head.began), f"replay of {recorded.name}")
        group.start_soon(replay, self._command, self._environment, steps, store, name="replay")
        return self._add(store)

    def _add(self, store: EntryStore) -> int:
        self._last += 1
        self._stores[self._last] = store
        for number in [number for number in self._stores if 0 < number <= self._last - MOST_OPENED]:
            del self._stores[number]
        return self._last


async def fill(store: EntryStore, records: Sequence[Record]) -> None:
    """Analyse the records of a file, letting others run meanwhile."""
    analyzer = Analyzer()
    for start in range(0, len(records), PIECE):
        store.add([analyzer.entry(record, record.value()) for record in records[start : start + PIECE]])
        await anyio.lowlevel.checkpoint()
    store.end()


HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every response."""


class Guard(Struct, frozen=True):
    token: str
    port: int

    @property
    def hosts(self) -> tuple[str, ...]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def refusal(self, path: str, headers: Mapping[str, str]) -> str | None:
        """Return why a request is refused, None if it is not. Names of headers are in lower case."""
        if headers.get("host") not in self.hosts:
            return "this page is served to 127.0.0.1 and localhost only"
        origin = headers.get("origin")
        if origin is not None and origin not in [f"http://{host}" for host in self.hosts]:
            return "requests of other pages are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "requests of other pages are refused"
        given = path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            return "the address needs the token that `app-server inspect` printed"
        return None


_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
BUNDLE = Path(__file__).with_name("page")
PACE = 0.05
"""Seconds between two events of a stream: what comes meanwhile goes together."""
LARGEST_SESSION = 512 << 20
MOST_DIGITS = 18
"""Of a number in an address: Python refuses to read thousands."""


class Guarded:
    """Refuses requests that the guard refuses, and gives every response its headers."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers") or []
                message["headers"] = [*given, *_HEADERS]
            await send(message)

        refusal = self._guard.refusal(scope["path"], dict(Headers(scope=scope)))
        app = self._app if refusal is None else PlainTextResponse(f"{refusal}\n", 403)
        await app(scope, receive, send_with_headers)


def page_app(sessions: ShownSessions, guard: Guard, group: TaskGroup) -> ASGIApp:
    """Build the application; replays run in `group`."""

    def of_session(
        handler: Callable[[Request, EntryStore], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            number = _number(request.path_params["session"])
            store = None if number is None else sessions.store(number)
            return (
                _refused(404, "there is no such session") if store is None else await handler(request, store)
            )

        return handle

    async def opened(request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return _refused(413, "a session of more than 512 MiB is too large")
        try:
            name = request.query_params.get("name", "a file")
            number = sessions.open(body.decode("utf-8", "replace"), name, group)
        except NotASession as error:
            return _refused(400, str(error))
        return JSONResponse({"session": number})

    async def about(request: Request, store: EntryStore) -> Response:
        named = {"server": store.head.shown_server(), "began": store.head.began, "name": store.name}
        return JSONResponse({**named, "canReplay": sessions.can_replay})

    async def replayed(request: Request, store: EntryStore) -> Response:
        try:
            return JSONResponse({"session": sessions.replay(store, group)})
        except ValueError as error:
            return _refused(409, str(error))

    api = [
        Route("/sessions", opened, methods=["POST"]),
        Route("/sessions/{session}", of_session(about)),
        Route("/sessions/{session}/events", of_session(_events)),
        Route("/sessions/{session}/entries/{entry}", of_session(_entry)),
        Route("/sessions/{session}/file", of_session(_file)),
        Route("/sessions/{session}/test", of_session(_test)),
        Route("/sessions/{session}/replay", of_session(replayed), methods=["POST"]),
    ]
    routes = [*api, Mount("/", StaticFiles(directory=BUNDLE, html=True))]
    return Guarded(Starlette(routes=[Mount(f"/{guard.token}", routes=routes)]), guard)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def _refused(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


async def _body(request: Request) -> bytes | None:
    """Read the body of a request; None: it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_SESSION:
            return None
    return bytes(body)


async def _events(request: Request, store: EntryStore) -> Response:
    """Stream server-sent events: `{"rows": [...], "gap": N}`, and `{"end": true}` when nothing more comes."""
    start = _number(request.query_params.get("after", "0"))
    if start is None:
        return _refused(400, f"`after` must be a number of at most {MOST_DIGITS} digits")

    async def stream() -> AsyncIterator[bytes]:
        number = start
        yield b": the stream begins\n\n"
        while await store.wait(number):
            gap, entries = store.after(number)
            number += gap + len(entries)
            rows = [entry.row() for entry in entries]
            data = json.dumps({"rows": rows, "gap": gap}, separators=(",", ":"))
            yield f"id: {number}\ndata: {data}\n\n".encode("utf-8", "replace")
            await anyio.sleep(0 if store.has(number) else PACE)
        yield b'data: {"end":true}\n\n'

    return StreamingResponse(stream(), media_type="text/event-stream")


async def _entry(request: Request, store: EntryStore) -> Response:
    """Send the whole text of a message that was too long to be sent by itself."""
    number = _number(request.path_params["entry"])
    entry = None if number is None else store.entry(number)
    if entry is None:
        return _refused(404, "this message is not kept any more")
    return PlainTextResponse(entry.record.text.encode("utf-8", "replace"))


async def _file(request: Request, store: EntryStore) -> Response:
    lines = session_lines(store.head, (entry.record for entry in store.all()))
    return Response(
        "".join(lines).encode("utf-8", "backslashreplace"),
        media_type="application/jsonl",
        headers={"content-disposition": 'attachment; filename="session.jsonl"'},
    )


async def _test(request: Request, store: EntryStore) -> Response:
    text = as_test(store.head, steps_of(entry.record for entry in store.all()))
    return Response(
        text.encode("utf-8", "backslashreplace"),
        media_type="text/x-python",
        headers={"content-disposition": 'attachment; filename="test_session.py"'},
    )
