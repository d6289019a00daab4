"""The order of the calls of one reply: parallel tools run together, every other tool alone, in the model's order.

A call of a tool that is not parallel waits for all earlier calls, and all later calls wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import field

import anyio

from protocol.records import dataclass


@dataclass(slots=True)
class CallSlot:
    parallel: bool
    done: anyio.Event = field(default_factory=anyio.Event)


class CallOrder:
    """Each call gets its slot in the model's order, before any call runs."""

    def __init__(self) -> None:
        self._slots: list[CallSlot] = []

    def add(self, *, parallel: bool) -> CallSlot:
        slot = CallSlot(parallel)
        self._slots.append(slot)
        return slot

    @asynccontextmanager
    async def wait_for(self, slot: CallSlot) -> AsyncIterator[None]:
        """Wait until the call may run. Leaving the context releases the calls that wait for it."""
        try:
            earlier = self._slots[: self._slots.index(slot)]  # added before, still running
            for other in earlier:
                if not (slot.parallel and other.parallel):
                    await other.done.wait()
            yield
        finally:
            slot.done.set()
            self._slots.remove(slot)
