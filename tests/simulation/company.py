"""The clients beside the first one.

People connect to the same server at any moment, follow the threads that are there, act in them, leave or die in the
middle, and connect again. One person leaves and comes back. A visitor has a server of its own on the same home.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from tests.simulation.connection import Gone
from tests.simulation.habits import ANSWERS
from tests.simulation.later import is_stored
from tests.simulation.people import APIS, Person

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

BETWEEN, BETWEEN_VISITS = (0.4, 0.0, 0.02, 3.0, 20.0), (0.4, 0.0, 3.0, 60.0)
"""Pauses between two deeds in virtual seconds: of a person who does not wait for a sign, and of a visitor."""

DEEDS = ("interrupt", "steer", "second turn", "settings", "read", "resume", "name", "turn", "turn", "guess")
"""Deeds of these people beside those of this world. The last one is an answer under the id of a question that they did
not receive.
"""

VISITORS_DEEDS = ("read", "name", "fork", "archive", "rollback", "settings")


async def keep_company(world: "SimWorld", api: str) -> None:
    """Connect a client to the first server, once or several times."""
    draws = world.draws
    with counted(world):
        for _ in range(draws.pick("stays", (1, 1, 2, 3))):
            await _some_moment(world, world.people[0])
            if world.calm.is_set():
                return
            async with world.connection(api) as person:
                person.answers = draws.pick("answers of somebody", ANSWERS)
                try:
                    await _stay(world, person)
                except Gone:
                    person.left_early = True


async def _stay(world: "SimWorld", person: Person) -> None:
    draws = world.draws
    await person.begin()
    world.model.note("somebody joined")
    for _ in range(draws.pick("things in company", (2, 4, 8))):
        threads = [each for each in dict.fromkeys(world.record.threads) if each not in world.record.gone]
        for thread in threads:
            if thread not in person.followed and draws.chance("follows", 0.8):
                await person.follow(thread)
        if world.calm.is_set():
            break
        if person.followed:
            thread = draws.pick("thread in company", sorted(person.followed))
            await _do(world, person, thread)
        await _some_moment(world, person)
    match draws.pick("end of a stay", ("stays", "leaves", "dies")):
        case "stays":
            await world.calm.wait()
            await world.all_quiet()
        case "leaves":
            person.left_early = True
        case "dies":
            person.dead = True
            if person.left_at is None:  # it may have left by a deed of its own
                person.left_at = anyio.current_time()


async def _do(world: "SimWorld", person: Person, thread: str) -> None:
    draws = world.draws
    deed = draws.pick("deed in company", (*DEEDS, *world.habits.deeds))
    if deed == "turn":
        await person.turn(thread)
    elif deed == "guess":
        await person.guess()
    elif deed != "leave":
        await person.try_deed(thread, deed, person.running_in(thread))


async def _some_moment(world: "SimWorld", person: Person) -> None:
    """Wait for a sign that this person is shown, or for some time."""
    if world.draws.chance("company at a sign", 0.6):
        await person.moment()
    else:
        with anyio.move_on_after(world.draws.pick("between company", BETWEEN)):
            await world.calm.wait()


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
    """Connect again to a new server and resume every thread."""
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
    """Read the threads of the first server in another server, and try to resume them. The resume is refused while the
    first server has them open.
    """
    draws = world.draws
    with counted(world):
        async with world.server(draws.pick("api of a visitor", APIS)) as person:
            await person.begin()
            for _ in range(draws.pick("visits", (1, 2, 5))):
                with anyio.move_on_after(draws.seconds("between visits", *BETWEEN_VISITS)):
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
