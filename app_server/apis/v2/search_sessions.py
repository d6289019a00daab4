"""Searches whose query changes while the user types: each new query takes the place of the one before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field

import anyio
from anyio.abc import TaskGroup

from app_server.core.files.search import FileMatch, FileSearch
from app_server.rpc.errors import invalid_request
from protocol.records import dataclass

MOST = 64
"""Sessions of one client."""

Found = Callable[[str, str, Sequence[FileMatch]], Awaitable[None]]
"""Notifies the client: the session, its query, and what was found."""


@dataclass(slots=True)
class SearchSession:
    roots: tuple[str, ...]
    running: anyio.CancelScope | None = None
    """The search for the latest query."""

    def stop(self) -> None:
        if self.running is not None:
            self.running.cancel()


@dataclass(slots=True)
class SearchSessions:
    """All of one client, by the client's own names."""

    search: FileSearch
    tasks: TaskGroup
    found: Found
    _sessions: dict[str, SearchSession] = field(default_factory=dict)

    def start(self, id: str, roots: tuple[str, ...]) -> None:
        """In place of one of the same name. Raises RpcError."""
        self.stop(id)
        if len(self._sessions) >= MOST:
            raise invalid_request(f"no more than {MOST} file searches can be open", "too_many_sessions")
        self._sessions[id] = SearchSession(roots)

    def get(self, id: str) -> SearchSession:
        """Raises RpcError."""
        session = self._sessions.get(id)
        if session is None:
            raise invalid_request(f"fuzzy file search session not found: {id}", "session_not_found")
        return session

    def look_for(self, id: str, session: SearchSession, query: str) -> None:
        """Begin to search, unless the session has ended meanwhile; what was begun before is not sent any more."""
        session.stop()
        if self._sessions.get(id) is session:
            session.running = anyio.CancelScope()
            self.tasks.start_soon(self._search, session.running, id, session.roots, query, name="file search")

    def stop(self, id: str) -> None:
        session = self._sessions.pop(id, None)
        if session is not None:
            session.stop()

    async def _search(self, scope: anyio.CancelScope, id: str, roots: tuple[str, ...], query: str) -> None:
        with scope:
            await self.found(id, query, await self.search.search(query, roots, names_count=True))
