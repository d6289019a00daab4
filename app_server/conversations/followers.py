"""The queues of all clients that are subscribed to one conversation. It goes on while one of them is read."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import msgspec
from msgspec import Struct

from app_server.rpc.outgoing import Outgoing


class Followers(Struct):
    """The queues of all clients that are subscribed to a conversation: it goes on as long as one of them is read."""

    queues: list[Outgoing] = msgspec.field(default_factory=list)

    def become(self, queues: Iterable[Outgoing]) -> None:
        """Take these queues for those of the subscribed clients. One may come several times."""
        self.queues = list(dict.fromkeys(queues))

    def leave_behind(self, queue: Outgoing) -> bool:
        """Return whether a client has much to read, and there are others for whom the conversation goes on."""
        return len(self.queues) > 1 and queue.congested

    async def wait_for_capacity(self) -> None:
        """Wait while all have much to read; where there is nobody, return at once."""
        if not self.queues:
            return
        for each in self.queues:
            if not each.congested:
                return
        async with anyio.create_task_group() as group:

            async def wait_for(outgoing: Outgoing) -> None:
                await outgoing.wait_for_capacity()
                group.cancel_scope.cancel()

            for each in self.queues:
                group.start_soon(wait_for, each)
