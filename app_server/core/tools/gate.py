"""In which order the calls of a reply run: parallel tools together, every other alone, all in the model's order.

A call that may not run beside others waits for all earlier ones and is waited for by all later ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field

import anyio

from protocol.records import dataclass


@dataclass(slots=True)
class Ticket:
    parallel: bool
    done: anyio.Event = field(default_factory=anyio.Event)


class Gate:
    """Tickets are drawn in the model's order, before any call runs."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def draw(self, *, parallel: bool) -> Ticket:
        ticket = Ticket(parallel)
        self._tickets.append(ticket)
        return ticket

    @asynccontextmanager
    async def turn_of(self, ticket: Ticket) -> AsyncIterator[None]:
        """Wait for the ticket's turn; leaving lets the next ones in."""
        try:
            earlier = self._tickets[: self._tickets.index(ticket)]  # drawn before, still running
            for other in earlier:
                if not (ticket.parallel and other.parallel):
                    await other.done.wait()
            yield
        finally:
            ticket.done.set()
            self._tickets.remove(ticket)
