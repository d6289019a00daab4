"""The page's server: who is let in, the files of the page, and where what it asks is answered.

Everything is below `/TOKEN/`, so what the page loads has the token by itself, and there is no cookie that another page
could use. A name that was made to point at this machine does not pass for `Host`, nor another page for `Origin`.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from anyio.abc import TaskGroup
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app_server.inspector import page_api
from app_server.inspector.session_records import NotASession
from app_server.inspector.shown_sessions import ShownSessions
from app_server.inspector.store import EntryStore

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
LARGEST_SESSION = 512 << 20


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

    def of_session(handler: page_api.Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            number = page_api.number(request.path_params["session"])
            store = None if number is None else sessions.store(number)
            if store is None:
                return page_api.refused(404, "there is no such session")
            return await handler(request, store)

        return handle

    async def opened(request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return page_api.refused(413, "a session of more than 512 MiB is too large")
        try:
            name = request.query_params.get("name", "a file")
            number = sessions.open(body.decode("utf-8", "replace"), name, group)
        except NotASession as error:
            return page_api.refused(400, str(error))
        return page_api.answered({"session": number})

    async def about(request: Request, store: EntryStore) -> Response:
        named = {"server": store.head.shown_server(), "began": store.head.began, "name": store.name}
        return page_api.answered({**named, "canReplay": sessions.can_replay})

    async def replayed(request: Request, store: EntryStore) -> Response:
        try:
            return page_api.answered({"session": sessions.replay(store, group)})
        except ValueError as error:
            return page_api.refused(409, str(error))

    lists = page_api.ListApi(sessions)
    session, view = "/sessions/{session}", "/sessions/{session}/views/{view}"
    api = [
        Route("/sessions", opened, methods=["POST"]),
        Route(session, of_session(about)),
        Route(f"{session}/replay", of_session(replayed), methods=["POST"]),
        Route(f"{session}/views", of_session(lists.open_view), methods=["POST"]),
        Route(f"{view}/lines", of_session(lists.lines)),
        Route(f"{view}/place", of_session(lists.place)),
        Route(f"{view}/toggle", of_session(lists.toggle), methods=["POST"]),
        Route(f"{view}/events", of_session(lists.events)),
        *(Route(f"{session}/{place}", of_session(each)) for place, each in page_api.OF_SESSIONS.items()),
    ]
    routes = [*api, Mount("/", StaticFiles(directory=BUNDLE, html=True))]
    return Guarded(Starlette(routes=[Mount(f"/{guard.token}", routes=routes)]), guard)


async def _body(request: Request) -> bytes | None:
    """Read the body of a request; None: it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_SESSION:
            return None
    return bytes(body)
