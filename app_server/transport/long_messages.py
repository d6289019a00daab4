"""Bounds what the clients of one server together may have sent of messages that have not ended.

Bytes are not counted, but places for long messages: a message that was let in can always end, so nobody waits for
somebody who waits.
"""

from __future__ import annotations

import anyio

SHORT_BYTES = 1 << 20
"""A message that is no longer than this needs no place."""
ALL_BYTES = 256 << 20
"""Of all long messages together that have not ended."""
PATIENCE = 10
"""Seconds that a client waits for a place, unread."""


class LongMessages:
    """The places of one server."""

    def __init__(self, limit: int) -> None:
        """`limit` is that of the bytes of one message."""
        self._free = anyio.Semaphore(max(1, ALL_BYTES // limit), fast_acquire=True)

    def connection(self) -> Room:
        return Room(self._free)


class Room:
    """Room for the messages of one connection: it has at most one place, while a long message comes."""

    def __init__(self, free: anyio.Semaphore | None = None) -> None:
        """Without `free` there is always one: its client has the server for itself."""
        self._free, self.is_taken = free, False

    async def is_enough_for(self, size: int) -> bool:
        """Take or give back the place for a message of which `size` bytes have come; wait for one where that is needed.
        Return whether there is one.
        """
        if size <= SHORT_BYTES:
            self.leave()
        elif not self.is_taken and self._free is not None:
            with anyio.move_on_after(PATIENCE):
                await self._free.acquire()
                self.is_taken = True
            return self.is_taken
        return True

    def leave(self) -> None:
        if self.is_taken and self._free is not None:
            self.is_taken = False
            self._free.release()
