"""The server that this process replaces, as it is seen from here: it waits until this one is ready, hands over, and
ends when everything has been taken.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

from app_server.apis.keeping import Together
from app_server.core.threads import run_in_thread
from app_server.server import Server
from app_server.shared.handover import LOADED, TOOK, HandedOver, receive
from app_server.shared.moving import restore
from app_server.shared.reception import Reception


class Predecessor:
    """The other end of its socket."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._channel = socket.socket(fileno=descriptor)

    async def take(self) -> tuple[HandedOver, list[int]] | None:
        """Say that this server is ready, and wait for what it goes on with; None where the other one goes on."""
        self._channel.sendall(LOADED)
        return await run_in_thread(receive, self._channel, abandon_on_cancel=True)

    async def go_on(
        self, server: Server, reception: Reception, state: HandedOver, descriptors: Iterator[int]
    ) -> None:
        """Make every connection what it was, let the other server end, and serve."""
        reception.last_number = state.last_number
        server.conversations.restoring = True
        together = Together(len(state.connections))
        for kept, descriptor in zip(state.connections, descriptors, strict=True):
            restore(reception, kept, descriptor, together)
        await together.all_joined()
        self._channel.sendall(TOOK)
        await run_in_thread(self._channel.recv, 1)  # the end of that process
        self._channel.close()
        together.goes_on.set()
        server.conversations.restored()
