"""The page's HTTP server: its access control, the files of the page, and the routes of its requests. It listens on a
loopback port as long as a session, or a person with a file, needs it.

Everything is below `/TOKEN/`, so that all requests of the page contain the token, and there is no cookie that another
page could use. A host name that was made to point to this machine is refused by `Host`, and another page by `Origin`.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import uvicorn
from anyio.abc import TaskGroup
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app_server.cli.inspect import page_api
from app_server.cli.inspect.line_store import EntryStore
from app_server.cli.inspect.page_api import ShownSessions, fill
from app_server.cli.inspect.session_records import MAX_SESSION_BYTES, NotASession, read_session
from app_server.cli.named_files import new_private_file, read_input
from app_server.server.bootstrap.standard_streams import complain
from app_server_protocol.encoding import Json

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
"""Headers of every response."""


class Guard(Struct, frozen=True):
    token: str
    port: int

    @property
    def hosts(self) -> tuple[str, ...]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"

    def refusal(self, path: str, headers: Mapping[str, str]) -> str | None:
        """Return the reason why a request is refused; None if it is allowed. Names of headers are in lower case."""
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
GRACE = 10
"""Timeout for pages to receive the end of a session, in seconds; a page that reads gets it at once."""


class Guarded:
    """Refuses requests that the guard refuses, and adds the headers to every response."""

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
    """Return the application. Replays run in `group`."""

    def at(place: str, handler: page_api.Handler, *methods: str) -> Route:
        """Return a route for a path below that of a session."""

        async def handle(request: Request) -> Response:
            found = handler(request, sessions.store(page_api.number(request, "session")))
            return found if isinstance(found, Response) else page_api.answered(found)

        return Route("/sessions/{session}" + place, handle, methods=methods or None)

    async def opened(request: Request) -> Response:
        body = await page_api.body_of(request, page_api.LARGEST_SESSION, "a session of more than 512 MiB")
        name = request.query_params.get("name", "a file")
        return page_api.answered({"session": sessions.open(body.decode("utf-8", "replace"), name, group)})

    async def opened_view(request: Request) -> Response:
        store = sessions.store(page_api.number(request, "session"))
        filter = await page_api.body_of(request, page_api.MOST_FILTER, "a filter of more than 64 KiB")
        return page_api.answered(lists.open(store, filter))

    def about(_: Request, store: EntryStore) -> Json:
        named = {"server": store.head.shown_server(), "began": store.head.began, "name": store.name}
        return {**named, "canReplay": sessions.can_replay}

    lists = page_api.ListApi(sessions)
    routes = [
        Route("/sessions", opened, methods=["POST"]),
        Route("/sessions/{session}/views", opened_view, methods=["POST"]),
        at("", about),
        at("/replay", lambda _, store: {"session": sessions.replay(store, group)}, "POST"),
        at("/views/{view}/lines", lists.lines),
        at("/views/{view}/place", lists.place),
        at("/views/{view}/toggle", lists.toggle, "POST"),
        at("/views/{view}/events", lists.events),
        *(at(f"/{place}", each) for place, each in page_api.OF_SESSIONS.items()),
        Mount("/", StaticFiles(directory=BUNDLE, html=True)),
    ]
    refusals = {page_api.PageRefusal: _refused, NotASession: _refused}
    return Guarded(
        Starlette(routes=[Mount(f"/{guard.token}", routes=routes)], exception_handlers=refusals), guard
    )


def _refused(_: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, page_api.PageRefusal) else 400
    return page_api.answered({"error": str(error)}, status)


async def serve_page(sessions: ShownSessions, url_file: str, until: Callable[[], Awaitable[None]]) -> None:
    """Serve until `until` returns. The address is written to stderr, and to a file that only the user may read."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # before the address is announced
        guard = Guard(secrets.token_urlsafe(24), listener.getsockname()[1])
        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as replays:
                server = _Server(_config(page_app(sessions, guard, replays)))
                group.start_soon(server.serve, [listener], name="page")
                _announce(f"http://127.0.0.1:{guard.port}/{guard.token}/", url_file)
                await until()
                sessions.end()
                replays.cancel_scope.cancel()
            server.should_exit = True


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE,
    )


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program: Ctrl-C must not wait for pages."""
        yield


def _announce(url: str, url_file: str) -> None:
    print(f"app-server inspect: {url}", file=sys.stderr, flush=True)  # noqa: T201  the stdout is not ours
    if not url_file:
        return
    try:
        os.close(new_private_file(url_file, f"{url}\n".encode()))
    except OSError as error:
        what = f"cannot write {url_file}: {error.strerror}"
        complain("app-server inspect", what, "the address is in the line above")


def view(path: Path, command: Sequence[str], environment: Mapping[str, str], url_file: str) -> None:
    """Show a file until this process is interrupted. Raises OSError, or NotASession."""
    head, records = read_session(read_input(path, most=MAX_SESSION_BYTES).decode("utf-8", "replace"))
    store = EntryStore(head, path.name)

    async def until() -> None:
        await fill(store, records)
        await anyio.sleep_forever()

    anyio.run(serve_page, ShownSessions(store, command, environment), url_file, until)
