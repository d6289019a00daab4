"""Worlds that spin are reported like other failures, with their seed."""

import anyio
import anyio.lowlevel
import pytest

from tests.simulation import watchdog
from tests.simulation.people import Person
from tests.simulation.world import play

pytestmark = pytest.mark.simulation

SHOWS = ["make simulate ARGS='--seed 4'", "make simulate ARGS='--seed 4 --shrink'"]


async def never_yields(person: Person) -> None:
    while True:
        pass


async def yields_for_ever(person: Person) -> None:
    while True:
        await anyio.lowlevel.checkpoint()


async def is_not_stopped(person: Person) -> None:
    while True:
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException:
            continue


def test_a_step_that_never_yields_ends_its_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "STEP_SECONDS", 0.5)
    monkeypatch.setattr(Person, "live", never_yields)
    first, *_, show, shrinks = play(4).report.splitlines()
    assert first.startswith("no task has yielded for seconds of processor time: never_yields")
    assert [show, shrinks] == SHOWS


@pytest.mark.parametrize("spin", [yields_for_ever, is_not_stopped])
def test_tasks_that_yield_while_the_clock_stands_still_end_their_world(
    monkeypatch: pytest.MonkeyPatch, spin: object
) -> None:
    monkeypatch.setattr(watchdog, "MOST_STEPS", 3000)
    monkeypatch.setattr(Person, "live", spin)
    first, *_, show, shrinks = play(4).report.splitlines()
    assert first.startswith("the clock stands still while tasks take steps:")
    assert [show, shrinks] == SHOWS


def test_the_next_world_is_as_it_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = play(4).digest
    with monkeypatch.context() as patch:
        patch.setattr(watchdog, "STEP_SECONDS", 0.2)
        patch.setattr(Person, "live", never_yields)
        assert play(4).problems
    assert play(4).digest == digest
