"""Who comes beside the first client: one who left and comes back, and a visitor with a server of its own on the same
home.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from tests.simulation.connection import Gone
from tests.simulation.later import is_stored
from tests.simulation.people import APIS

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

BETWEEN = (0.4, 0.0, 3.0, 60.0)
"""Seconds between two things that a visitor does."""

VISITORS_DEEDS = ("read", "name", "fork", "archive", "rollback", "settings")


@contextmanager
def counted(world: "SimWorld") -> Iterator[None]:
    world.guests += 1
    try:
        yield
    except* Gone:
        pass
    finally:
        world.guests -= 1
        world.guest_left.set()


async def come_back(world: "SimWorld") -> None:
    """Connect again to a new server and go on with every thread."""
    with counted(world):
        async with world.again(world.habits.api) as person:
            await person.begin()
            for thread in _threads(world):
                if await person.history(thread) is not None:
                    person.go_on(thread)
                elif thread in _threads(world) and not (world.habits.visitor or world.habits.read_faults):
                    world.problems.append(f"thread {thread} cannot be resumed by who comes back")
            world.model.note("somebody came back")
            await world.calm.wait()
            await world.all_quiet()


async def visit(world: "SimWorld") -> None:
    """Look at the threads of the first server in another one, and try to go on with them. While they are open there,
    this is refused.
    """
    draws = world.draws
    with counted(world):
        async with world.server(draws.pick("api of a visitor", APIS)) as person:
            await person.begin()
            for _ in range(draws.pick("visits", (1, 2, 5))):
                with anyio.move_on_after(draws.seconds("between visits", *BETWEEN)):
                    await world.calm.wait()
                threads = _threads(world)
                if not threads or world.calm.is_set():
                    continue
                thread = draws.pick("visited thread", threads)
                if draws.chance("a visitor's deed", 0.5):
                    await person.do(thread, draws.pick("deed of a visitor", VISITORS_DEEDS), None)
                elif await person.history(thread) is None:
                    world.model.note("a thread that is open elsewhere was refused")
                else:
                    world.model.note("a visitor took a thread over")
                    await person.turn(thread)


def _threads(world: "SimWorld") -> list[str]:
    known = dict.fromkeys(world.record.threads)
    return [each for each in known if each not in world.record.gone and is_stored(world.home, each)]
