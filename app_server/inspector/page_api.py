"""What the page asks of a session: lines of its list, one message, what is known of the whole, files and tests.

The page holds what it shows and a little around it; everything else stays here, whatever its size.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from app_server.inspector.filters import MessageFilter
from app_server.inspector.lines import MessageLines
from app_server.inspector.message_test import test_of
from app_server.inspector.scenario import as_test, steps_of
from app_server.inspector.session_records import session_lines
from app_server.inspector.shown_sessions import ShownSessions
from app_server.inspector.store import EntryStore
from protocol.structs import Json

PACE = 0.05
"""Seconds between two events of a stream: what comes meanwhile goes together."""
MOST_VIEWS = 32
MOST_FILTER = 1 << 16
MOST_DIGITS = 18
"""Of a number in an address: Python refuses to read thousands."""
WHOLE = 1 << 62

Handler: TypeAlias = Callable[[Request, EntryStore], Awaitable[Response]]


def answered(value: Json, status: int = 200) -> Response:
    """Answer with JSON in ASCII: what was no Unicode stays what it was."""
    return Response(json.dumps(value, separators=(",", ":")), status, media_type="application/json")


def refused(status: int, message: str) -> Response:
    return answered({"error": message}, status)


def number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


class Views:
    """The lists that pages look at; the one that was not used for the longest time makes room."""

    def __init__(self) -> None:
        self._lines: OrderedDict[int, tuple[EntryStore, MessageLines]] = OrderedDict()
        self._last = 0

    def open(self, store: EntryStore, filter: MessageFilter) -> int:
        self._last += 1
        self._lines[self._last] = store, MessageLines(store, filter)
        if len(self._lines) > MOST_VIEWS:
            self._lines.popitem(last=False)
        return self._last

    def of(self, store: EntryStore, view: str) -> MessageLines | None:
        place = number(view)
        if place is None or place not in self._lines or self._lines[place][0] is not store:
            return None
        self._lines.move_to_end(place)
        return self._lines[place][1]


class ListApi:
    """Lists of messages, and the stream that says how they grow."""

    def __init__(self, sessions: ShownSessions) -> None:
        self._sessions = sessions
        self._views = Views()

    async def open_view(self, request: Request, store: EntryStore) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_FILTER:
                return refused(413, "a filter of more than 64 KiB is too large")
        try:
            filter = msgspec.json.decode(bytes(body), type=MessageFilter)
        except msgspec.MsgspecError as error:
            return refused(400, f"no filter: {error}")
        return answered({"view": self._views.open(store, filter)})

    async def lines(self, request: Request, store: EntryStore) -> Response:
        """Send the lines from `from` on, at most `count`."""
        start, count = (number(request.query_params.get(name, "")) for name in ("from", "count"))
        lines = self._views.of(store, request.path_params["view"])
        if lines is None:
            return refused(404, "this list is not kept any more")
        if start is None or count is None:
            return refused(400, f"`from` and `count` must be numbers of at most {MOST_DIGITS} digits")
        lines.update()
        return answered({"first": lines.gone, "total": lines.total, "lines": lines.shown(start, count)})

    async def place(self, request: Request, store: EntryStore) -> Response:
        """Say which line shows an entry."""
        lines = self._views.of(store, request.path_params["view"])
        entry = number(request.query_params.get("entry", ""))
        if lines is None or entry is None:
            return refused(404, "this list is not kept any more")
        return answered({"line": lines.place(entry)})

    async def toggle(self, request: Request, store: EntryStore) -> Response:
        lines = self._views.of(store, request.path_params["view"])
        line = number(request.query_params.get("line", ""))
        if lines is None or line is None:
            return refused(404, "this list is not kept any more")
        return answered({"line": lines.toggle(line), "total": lines.total})

    async def events(self, request: Request, store: EntryStore) -> Response:
        """Stream what is known of a session and a list whenever it changes, until the page or the inspector leaves."""
        lines = self._views.of(store, request.path_params["view"])
        if lines is None:
            return refused(404, "this list is not kept any more")
        return StreamingResponse(self._events(store, lines), media_type="text/event-stream")

    async def _events(self, store: EntryStore, lines: MessageLines) -> AsyncIterator[bytes]:
        told: Json = None
        with self._sessions.followed():
            while not self._sessions.over:
                change = store.next_change()
                is_more = lines.update()
                now = store.overview.brief() | {
                    "first": lines.gone,
                    "total": lines.total,
                    "matches": lines.matches,
                    "lost": store.first,
                    "ended": store.ended,
                    "ready": not is_more,
                }
                if now != told:
                    told = now
                    yield f"data: {json.dumps(now, separators=(',', ':'))}\n\n".encode()
                if is_more:
                    await anyio.lowlevel.checkpoint()
                else:
                    await change.wait()
                    await anyio.sleep(PACE)
            yield b'data: {"over":true}\n\n'


async def choices(request: Request, store: EntryStore) -> Response:
    return answered(store.overview.choices())


async def waiting(request: Request, store: EntryStore) -> Response:
    return answered(store.overview.open_requests())


async def figures(request: Request, store: EntryStore) -> Response:
    return answered(store.overview.figures())


async def stderr(request: Request, store: EntryStore) -> Response:
    """Send the newest lines of the server's stderr, after the entry with a number."""
    after = number(request.query_params.get("after", "")) or 0
    found = [entry for entry in store.overview.stderr if entry.number >= after]
    return answered([[entry.number, entry.record.at, entry.record.text[:4000]] for entry in found])


async def turn(request: Request, store: EntryStore) -> Response:
    named = (request.query_params.get(name, "") for name in ("thread", "turn"))
    found = store.overview.turn(*named)
    return answered(None if found is None else found.shown(store.overview.at))


async def violation(request: Request, store: EntryStore) -> Response:
    """Say which entry is the next with a violation, after one or (`back`) before it; round and round."""
    found = store.overview.violations
    after = number(request.query_params.get("after", ""))
    if not found:
        return answered({"n": -1})
    if request.query_params.get("back"):
        return answered({"n": next((n for n in reversed(found) if after is None or n < after), found[-1])})
    return answered({"n": next((n for n in found if after is None or n > after), found[0])})


async def entry(request: Request, store: EntryStore) -> Response:
    """Send the whole of a message, with its other side."""
    place = number(request.path_params["entry"])
    found = None if place is None else store.entry(place)
    if found is None:
        return refused(404, "this message is not kept any more")
    other = store.entry(store.overview.partner(found))
    partner = None if other is None else {"n": other.number, "at": other.record.at}
    return answered(
        {"row": found.row(WHOLE), "partner": partner, "open": found.number in store.overview.waiting}
    )


async def entry_test(request: Request, store: EntryStore) -> Response:
    place = number(request.path_params["entry"])
    try:
        text = test_of(store.head, store.all(), -1 if place is None else place)
    except ValueError as error:
        return refused(409, str(error))
    return PlainTextResponse(text.encode("utf-8", "backslashreplace"))


async def file(request: Request, store: EntryStore) -> Response:
    def lines() -> Iterator[bytes]:
        for line in session_lines(store.head, (each.record for each in store.all())):
            yield line.encode("utf-8", "backslashreplace")

    return StreamingResponse(
        lines(),
        media_type="application/jsonl",
        headers={"content-disposition": 'attachment; filename="session.jsonl"'},
    )


async def test(request: Request, store: EntryStore) -> Response:
    text = as_test(store.head, steps_of(each.record for each in store.all()))
    return Response(
        text.encode("utf-8", "backslashreplace"),
        media_type="text/x-python",
        headers={"content-disposition": 'attachment; filename="test_session.py"'},
    )


OF_SESSIONS: dict[str, Handler] = {
    "choices": choices,
    "waiting": waiting,
    "figures": figures,
    "stderr": stderr,
    "turn": turn,
    "violation": violation,
    "entries/{entry}": entry,
    "entries/{entry}/test": entry_test,
    "file": file,
    "test": test,
}
"""What is only read, by its place below that of its session."""
