"""The open sessions of a connection, by id."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field

from anyio.abc import TaskGroup

from app_server.apis.acp.client import AcpClient
from app_server.apis.acp.errors import session_not_found
from app_server.apis.acp.options import SessionOptions
from app_server.apis.acp.session import AcpSession, ConnectionServices
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager
from app_server.core.rollout.turn_fold import ItemIds
from app_server.rpc.outgoing import Outgoing
from protocol.records import dataclass

SUBSCRIPTION = "session"


@dataclass(slots=True)
class Sessions:
    conversations: ConversationManager
    outgoing: Outgoing
    background: TaskGroup
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    client: AcpClient = field(default_factory=AcpClient)
    """As it announced itself."""
    _open: dict[str, AcpSession] = field(default_factory=dict)

    def find(self, id: str) -> AcpSession | None:
        return self._open.get(id.lower())

    def get(self, id: str) -> AcpSession:
        """Raises RpcError."""
        session = self.find(id)
        if session is None:
            raise session_not_found(id)
        return session

    def add(self, live: LiveConversation, options: SessionOptions, ids: ItemIds) -> AcpSession:
        """`ids`: those that its stored items have."""
        shared = ConnectionServices(self.client, self.outgoing, self.background, self.clock)
        session = self._open[live.id] = AcpSession(live, shared, options, ids)
        self.background.start_soon(self._watch, session, name=f"session {live.id}")
        return session

    def follow(self, session: AcpSession) -> None:
        """From now on the client is sent what happens. It knows the session's id."""
        live = session.live
        self.conversations.subscribe(live, f"{SUBSCRIPTION} {live.id}", session.make_adapter, raw=False)

    async def _watch(self, session: AcpSession) -> None:
        await session.live.gone.wait()
        session.turns.session_ended()
        if self._open.get(session.id) is session:
            del self._open[session.id]
