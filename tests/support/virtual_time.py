"""Virtual time: it advances at once whenever everything waits for it."""

from collections.abc import Awaitable, Callable

import anyio

from tests.simulation.draws import Draws
from tests.simulation.loop import SimLoop


def in_virtual_time(test: Callable[[], Awaitable[None]]) -> None:
    anyio.run(test, backend_options={"loop_factory": lambda: SimLoop(Draws(0))})
