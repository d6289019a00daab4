"""The interface of a transport: lines in, bytes out. `stdio` and `memory` implement it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from app_server.transport.framing import Oversized


class TransportClosed(Exception):
    """The other side no longer reads what is written."""


class Transport(Protocol):
    def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        """Batches of whole lines as they arrive; ends when the other side closes its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of `data` (whole lines, ends included). Raises TransportClosed."""
        ...
