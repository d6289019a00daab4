"""The queue of one client, and its end where the client does not read.

A client that shares its server must neither make it wait nor fill its memory. It is disconnected when too much waits
for it that cannot be joined, or when it has read nothing for long, and is told so behind what is being written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from app_server.identity import Limits
from app_server.rpc.outgoing import Outgoing, Patience
from app_server.transport.framing import Transport, TransportClosed
from app_server_protocol.jsonrpc import dump_notification
from app_server_protocol.structs import json_bytes

log = logging.getLogger(__name__)

UNREAD_SECONDS = 600.0
"""Without reading anything, until a client that shares its server is disconnected."""
LOOK_SECONDS = 15.0
LEAVING_SECONDS = 60.0
"""For a disconnected client to read why."""
GRACE_SECONDS = 1.5
"""For a client that has left to read the rest; clients wait two seconds before they kill their server."""


class ServedClient:
    """The queue of one client with its writer, and why it was disconnected."""

    def __init__(
        self,
        transport: Transport,
        limits: Limits,
        clock: Callable[[], float],
        after_large_batch: Callable[[], None],
        *,
        acp: bool,
        shared: bool,
    ) -> None:
        """`clock` gives monotonic seconds. A client that is not `shared` has its server for itself: it may take its
        time.
        """
        self._acp, self._clock = acp, clock
        self.outgoing = Outgoing(
            transport.write,
            limits.unread_bytes,
            jsonrpc=acp,
            after_large_batch=after_large_batch,
            patience=Patience(limits.behind_bytes, self._too_much, clock) if shared else None,
        )
        self.scope = anyio.CancelScope()
        """Of serving it; cancelled when it is disconnected."""
        self.notice: str | None = None
        """Why it was disconnected."""

    def disconnect(self, why: str) -> None:
        """Serve it no longer. It is told why, and has some time to read that."""
        if self.notice is None:
            self.notice = f"disconnected: {why}; resume to go on"
            log.warning("a client was %s", self.notice)
            method = "_app-server/warning" if self._acp else "warning"
            params = json_bytes({"threadId": None, "message": self.notice})
            self.outgoing.cut(dump_notification(method, params))
            self.scope.cancel()

    def _too_much(self) -> None:
        self.disconnect(f"{self.outgoing.unread / 1e6:.0f} MB unread")

    async def write(self, connection: TaskGroup) -> None:
        """Write until the end; end the connection where the client no longer reads."""
        try:
            await self.outgoing.write_queued()
        except TransportClosed:
            log.info("the client no longer reads")
            self.outgoing.close()
            connection.cancel_scope.cancel()

    async def watch(self) -> None:
        """Disconnect it once it has read nothing for long. For clients that share their server."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        since = self.outgoing.writing_since
        if since is not None and self._clock() - since >= UNREAD_SECONDS:
            self.disconnect(f"nothing read for {UNREAD_SECONDS / 60:.0f} minutes")

    async def finish(self) -> None:
        """Write the rest, for as long as is left to the client; nothing waits for one that was disconnected."""
        seconds = GRACE_SECONDS if self.notice is None else LEAVING_SECONDS
        with anyio.move_on_after(seconds, shield=self.notice is None):
            await self.outgoing.finish()
