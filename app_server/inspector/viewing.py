"""Opens a session file in the page, without a server or a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from app_server.inspector.serving import serve_page
from app_server.inspector.session_file import read_session
from app_server.inspector.shown_sessions import ShownSessions, fill
from app_server.inspector.store import EntryStore


async def view(path: Path, command: Sequence[str], environment: Mapping[str, str], url_file: str) -> None:
    """Show a file until this process is interrupted. Raises OSError, or NotASession."""
    head, records = read_session(path.read_text(encoding="utf-8", errors="replace"))
    store = EntryStore(head, path.name)

    async def until() -> None:
        await fill(store, records)
        await anyio.sleep_forever()

    await serve_page(ShownSessions(store, command, environment), url_file, until)
