"""The queue of one client, and disconnecting a client that does not read.

A client that shares its server must neither delay it nor fill its memory. It is disconnected if too many lines that
cannot be coalesced are queued for it, or if it has read nothing for long. It is sent the reason after the lines that
are being written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from app_server.engine.support.limits import Limits
from app_server.server.rpc.outgoing import OutboundQueue, SlowClientLimit
from app_server_protocol.encoding import json_bytes
from app_server_protocol.framing import Transport, TransportClosed
from app_server_protocol.jsonrpc import dump_notification

log = logging.getLogger(__name__)

UNREAD_SECONDS = 600.0
"""Time without reading after which a client that shares its server is disconnected, in seconds."""
LOOK_SECONDS = 15.0
LEAVING_SECONDS = 60.0
"""Time for a disconnected client to read the reason, in seconds."""
GRACE_SECONDS = 1.5
"""Time for a client that has left to read the rest, in seconds; clients wait two seconds before they kill
their server.
"""


class ServedClient:
    """The queue of one client with its writer, and the reason for its disconnection."""

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
        """Begin with an empty queue. `clock` returns monotonic seconds. A client that is not `shared` has its server
        for itself, so it may read slowly.
        """
        self._acp, self._clock = acp, clock
        self.outgoing = OutboundQueue(
            transport.write,
            limits.unread_bytes,
            jsonrpc=acp,
            after_large_batch=after_large_batch,
            patience=SlowClientLimit(limits.behind_bytes, self._too_much, clock) if shared else None,
        )
        self.scope = anyio.CancelScope()
        """Cancel scope of serving the client; cancelled when it is disconnected."""
        self.notice: str | None = None
        """Reason for the disconnection; None if the client was not disconnected."""

    def disconnect(self, why: str) -> None:
        """Stop serving the client. It is sent the reason, and has some time to read it."""
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
        """Write until the end; cancel the connection if the client no longer reads."""
        try:
            await self.outgoing.write_queued()
        except TransportClosed:
            log.info("the client no longer reads")
            self.outgoing.close()
            connection.cancel_scope.cancel()

    async def watch(self) -> None:
        """Disconnect the client once it has read nothing for long. Only for clients that share their server."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        since = self.outgoing.writing_since
        if since is not None and self._clock() - since >= UNREAD_SECONDS:
            self.disconnect(f"nothing read for {UNREAD_SECONDS / 60:.0f} minutes")

    async def finish(self) -> None:
        """Write the rest within the time that the client has left; no time for a client that was disconnected."""
        seconds = GRACE_SECONDS if self.notice is None else LEAVING_SECONDS
        with anyio.move_on_after(seconds, shield=self.notice is None):
            await self.outgoing.finish()
