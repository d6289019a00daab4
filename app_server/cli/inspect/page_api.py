"""The requests of the page about a session, and the sessions that pages show.

A page asks for lines of its list, one message, facts about the whole session, files and tests. The page keeps only what
it shows and a little around it; everything else stays in this process, whatever its size.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from app_server.cli.inspect.analysis import Analyzer
from app_server.cli.inspect.line_store import EntryStore
from app_server.cli.inspect.recorded_lines import MessageFilter, MessageLines
from app_server.cli.inspect.scenario import as_test, steps_of, test_of
from app_server.cli.inspect.session_records import Record, SessionHead, read_session, session_lines
from app_server.cli.inspect.session_replay import replay
from app_server_protocol.encoding import Json

PACE = 0.05
"""Minimum interval between two events of a stream, in seconds; changes within it are combined."""
MOST_VIEWS = 32
MOST_FILTER, LARGEST_SESSION = 1 << 16, 512 << 20
"""Maximum sizes of a filter and of an opened session, in bytes."""
MOST_DIGITS = 18
"""Maximum number of digits of a number in an address: Python refuses to parse thousands."""
WHOLE = 1 << 62
MOST_OPENED = 16
"""Maximum number of sessions besides the first; beyond it the oldest is removed."""
RETURNS_WITHIN = 1.0
"""Time in which a page can be loaded again, or can open another list, in seconds."""
PIECE = 500
"""Number of records that are analysed before other tasks run."""


class ShownSessions:
    """The sessions that pages show, by number. 0 is the one that passes through; others were opened or are replays."""

    def __init__(
        self, first: EntryStore, command: Sequence[str], environment: Mapping[str, str] | None
    ) -> None:
        """Begin with one session. A replay starts `command` with `environment`; without a command there are no
        replays.
        """
        self._stores = {0: first}
        self._command, self._environment = command, environment
        self._last = 0
        self._followers = 0
        self._left = anyio.Event()
        self._came = anyio.Event()
        self.over = False
        """Whether pages are not served any more."""

    @property
    def can_replay(self) -> bool:
        return bool(self._command)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count an open page."""
        self._followers += 1
        self._came.set()
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                self._came = anyio.Event()
                self._left.set()
                self._left = anyio.Event()

    async def until_nobody_follows(self) -> None:
        """Wait until no page is open, nor opened again within `RETURNS_WITHIN`. Return at once if none was ever
        open.
        """
        if not self._came.is_set():
            return
        while True:
            while self._followers:
                await self._left.wait()
            with anyio.move_on_after(RETURNS_WITHIN):
                await self._came.wait()
                continue
            return

    def end(self) -> None:
        """End the streams to pages."""
        self.over = True
        for store in self._stores.values():
            store.wake()

    def store(self, number: int | None) -> EntryStore:
        """Return the session with a number. Raises PageRefusal."""
        if number not in self._stores:
            raise PageRefusal(404, "there is no such session")
        return self._stores[number]

    def open(self, text: str, name: str, group: TaskGroup) -> int:
        """Open a session from the text of a file; return its number. Raises NotASession."""
        head, records = read_session(text)
        store = EntryStore(head, name)
        group.start_soon(fill, store, records, name="open a session")
        return self._add(store)

    def replay(self, recorded: EntryStore, group: TaskGroup) -> int:
        """Begin a replay; return its number. Raises PageRefusal if there is nothing to play, or no server."""
        steps = steps_of(entry.record for entry in recorded.all())
        if not self._command:
            raise PageRefusal(
                409, "no server was named; as in `app-server inspect --open FILE -- SERVER ARG...`"
            )
        if not steps:
            raise PageRefusal(409, "the client said nothing in this session")
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
    """Analyse the records of a file, and let other tasks run in between."""
    analyzer = Analyzer()
    for start in range(0, len(records), PIECE):
        store.add([analyzer.entry(record, record.value()) for record in records[start : start + PIECE]])
        await anyio.lowlevel.checkpoint()
    store.end()


class PageRefusal(Exception):
    """A request of the page cannot be answered. It has the HTTP status, and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


Handler: TypeAlias = Callable[[Request, EntryStore], Json | Response]
"""Function that answers a request. It returns a value to be sent as JSON, or a response of another kind. It raises
PageRefusal.
"""


def answered(value: Json, status: int = 200) -> Response:
    """Return a response with JSON in ASCII, so that text which is not valid Unicode is preserved."""
    return Response(json.dumps(value, separators=(",", ":")), status, media_type="application/json")


def number(request: Request, name: str) -> int | None:
    """Return a number from the address; None if the value is no number."""
    text = str(request.path_params.get(name) or request.query_params.get(name, ""))
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def needed(request: Request, name: str) -> int:
    """Return a number from the address. Raises PageRefusal if there is none."""
    found = number(request, name)
    if found is None:
        raise PageRefusal(400, f"`{name}` must be a number of at most {MOST_DIGITS} digits")
    return found


async def body_of(request: Request, most: int, what: str) -> bytes:
    """Return the body of a request. Raises PageRefusal if it has more than `most` bytes."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise PageRefusal(413, f"{what} is too large")
    return bytes(body)


class ListApi:
    """Lists of messages, and the stream of their changes. If there are too many lists, the least recently used one is
    removed.
    """

    def __init__(self, sessions: ShownSessions) -> None:
        self._sessions = sessions
        self._lists: OrderedDict[int | None, tuple[EntryStore, MessageLines]] = OrderedDict()
        self._last = 0

    def open(self, store: EntryStore, filter: bytes) -> Json:
        """Open a list with a filter in JSON. Raises PageRefusal."""
        try:
            lines = MessageLines(store, msgspec.json.decode(filter, type=MessageFilter))
        except msgspec.MsgspecError as error:
            raise PageRefusal(400, f"no filter: {error}") from None
        self._last += 1
        self._lists[self._last] = store, lines
        if len(self._lists) > MOST_VIEWS:
            self._lists.popitem(last=False)
        return {"view": self._last}

    def _list(self, request: Request, store: EntryStore) -> MessageLines:
        """Return the list that the request names. Raises PageRefusal."""
        view = number(request, "view")
        of, lines = self._lists.get(view, (None, None))
        if lines is None or of is not store:
            raise PageRefusal(404, "this list is not kept any more")
        self._lists.move_to_end(view)
        return lines

    def lines(self, request: Request, store: EntryStore) -> Json:
        """Return the lines from `from` on, at most `count`."""
        lines = self._list(request, store)
        start, count = needed(request, "from"), needed(request, "count")
        lines.update()
        return {"first": lines.gone, "total": lines.total, "lines": lines.shown(start, count)}

    def place(self, request: Request, store: EntryStore) -> Json:
        """Return the number of the line that shows an entry."""
        return {"line": self._list(request, store).place(needed(request, "entry"))}

    def toggle(self, request: Request, store: EntryStore) -> Json:
        lines = self._list(request, store)
        return {"line": lines.toggle(needed(request, "line")), "total": lines.total}

    def events(self, request: Request, store: EntryStore) -> Response:
        """Stream the facts about a session and a list whenever they change, until the page or the inspector leaves."""
        told = self._events(store, self._list(request, store))
        return StreamingResponse(told, media_type="text/event-stream")

    async def _events(self, store: EntryStore, lines: MessageLines) -> AsyncIterator[bytes]:
        told: Json = None
        with self._sessions.followed():
            while not self._sessions.over:
                change = store.changed
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


def stderr(request: Request, store: EntryStore) -> Json:
    """Return the newest lines of the server's stderr, from the entry number `after` on."""
    after = number(request, "after") or 0
    found = [entry for entry in store.overview.stderr if entry.number >= after]
    return [[entry.number, entry.record.at, entry.record.text[:4000]] for entry in found]


def turn(request: Request, store: EntryStore) -> Json:
    named = (request.query_params.get(name, "") for name in ("thread", "turn"))
    found = store.overview.turn(*named)
    return None if found is None else found.shown(store.overview.at)


def violation(request: Request, store: EntryStore) -> Json:
    """Return the number of the next entry with a violation, after one or (`back`) before it. The search wraps
    around.
    """
    found, after = store.overview.violations, number(request, "after")
    if not found:
        return {"n": -1}
    if request.query_params.get("back"):
        return {"n": next((n for n in reversed(found) if after is None or n < after), found[-1])}
    return {"n": next((n for n in found if after is None or n > after), found[0])}


def entry(request: Request, store: EntryStore) -> Json:
    """Return a whole message, with the entry of its request or answer."""
    place = number(request, "entry")
    found = None if place is None else store.entry(place)
    if found is None:
        raise PageRefusal(404, "this message is not kept any more")
    other = store.entry(store.overview.partner(found))
    partner = None if other is None else {"n": other.number, "at": other.record.at}
    return {"row": found.row(WHOLE), "partner": partner, "open": found.number in store.overview.waiting}


def entry_test(request: Request, store: EntryStore) -> Response:
    place = number(request, "entry")
    try:
        text = test_of(store.head, store.all(), -1 if place is None else place)
    except ValueError as error:
        raise PageRefusal(409, str(error)) from None
    return PlainTextResponse(_bytes(text))


def file(request: Request, store: EntryStore) -> Response:
    lines = session_lines(store.head, (each.record for each in store.all()))
    return StreamingResponse(
        map(_bytes, lines), headers=_saved_as("session.jsonl"), media_type="application/jsonl"
    )


def test(request: Request, store: EntryStore) -> Response:
    text = as_test(store.head, steps_of(each.record for each in store.all()))
    return Response(_bytes(text), headers=_saved_as("test_session.py"), media_type="text/x-python")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _saved_as(name: str) -> Mapping[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


OF_SESSIONS: dict[str, Handler] = {
    "choices": lambda _, store: store.overview.choices(),
    "waiting": lambda _, store: store.overview.open_requests(),
    "figures": lambda _, store: store.overview.figures(),
    "stderr": stderr,
    "turn": turn,
    "violation": violation,
    "entries/{entry}": entry,
    "entries/{entry}/test": entry_test,
    "file": file,
    "test": test,
}
"""Handlers of requests that only read, by their path below that of the session."""
