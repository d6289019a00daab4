"""Back-pressure of one conversation, from the queues of all its subscribed clients."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import msgspec
from msgspec import Struct

from app_server.server.rpc.outgoing import OutboundQueue


class SubscriberQueues(Struct):
    """The queues of all clients that are subscribed to a conversation. It goes on as long as one of them is read."""

    queues: list[OutboundQueue] = msgspec.field(default_factory=list)

    def become(self, queues: Iterable[OutboundQueue]) -> None:
        """Replace the queues by those of the subscribed clients. A queue may occur several times."""
        self.queues = list(dict.fromkeys(queues))

    async def wait_for_capacity(self) -> None:
        """Wait while all clients are behind; if there are none, return at once."""
        if not self.queues:
            return
        for each in self.queues:
            if not each.congested:
                return
        async with anyio.create_task_group() as group:

            async def wait_for(outgoing: OutboundQueue) -> None:
                await outgoing.wait_for_capacity()
                group.cancel_scope.cancel()

            for each in self.queues:
                group.start_soon(wait_for, each)
