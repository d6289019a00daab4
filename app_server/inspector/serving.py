"""Serves the page with uvicorn on a loopback port, for as long as a session, or a person with a file, needs it."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import uvicorn
from starlette.types import ASGIApp

from app_server.inspector.page_server import Guard, page_app
from app_server.inspector.session_records import new_private_file, read_session
from app_server.inspector.shown_sessions import ShownSessions, fill
from app_server.inspector.store import EntryStore
from app_server.standard_streams import complain

GRACE = 10
"""Seconds that pages have to take the end of a session; one that reads gets it at once."""


async def serve_page(sessions: ShownSessions, url_file: str, until: Callable[[], Awaitable[None]]) -> None:
    """Serve until `until` returns. The address goes to stderr, and to a file that only the user may read."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # before the address is known
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
    def install_signal_handlers(self) -> None:
        """Leave signals to others."""


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
    head, records = read_session(path.read_text(encoding="utf-8", errors="replace"))
    store = EntryStore(head, path.name)

    async def until() -> None:
        await fill(store, records)
        await anyio.sleep_forever()

    anyio.run(serve_page, ShownSessions(store, command, environment), url_file, until)
