"""Simulated worlds in the test suite: those that failed once, fresh ones, and some that are played twice."""

import gc
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.coverage import SITUATIONS
from tests.simulation.draws import Choices, Draws, fresh_seed
from tests.simulation.habits import draw_habits
from tests.simulation.shrink import shrink
from tests.simulation.world import Outcome, play

pytestmark = pytest.mark.simulation

FOUND = sorted(Path(__file__).with_name("found").glob("*.json"))
LONG = os.environ.get("FAULTS") == "long"
BLOCK = 25
BLOCKS = 400 if LONG else 12
"""Number of blocks of seeds. Each block is one test, so that blocks run in parallel."""


@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_a_world_that_failed_once(path: Path) -> None:
    found = json.loads(path.read_text())
    outcome = play(found["seed"], found["choices"])
    plan = f"make simulate ARGS='--plan {path.relative_to(Path.cwd())}'"
    assert not outcome.problems, "\n".join([*outcome.problems, plan])


FIRST = 700_000
"""First seed of the worlds that the suite plays, the same each time: it fails because of a change, and not by chance.
`make simulate` and `FAULTS=long` play fresh worlds.
"""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_worlds(block: int) -> None:
    first = (fresh_seed() if LONG else FIRST) + block * BLOCK
    for seed in range(first, first + BLOCK):
        outcome = play(seed)
        assert not outcome.problems, outcome.report


@pytest.mark.skipif(not LONG, reason="a fifth of the fresh worlds are such; FAULTS=long plays 1,000 of them")
def test_worlds_of_several_clients() -> None:
    seeds = (seed for seed in itertools.count(fresh_seed()) if draw_habits(Draws(seed)).company)
    for seed in itertools.islice(seeds, 1000):
        outcome = play(seed)
        assert not outcome.problems, outcome.report


def test_a_seed_is_played_alike_twice_and_in_a_process_with_other_hashes() -> None:
    seeds = range(8)
    here = [play(seed).digest for seed in seeds]
    assert here == [play(seed).digest for seed in seeds]
    script = "from tests.simulation.world import play; print([play(seed).digest for seed in range(8)])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "4711"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(here)


def test_choices_replay_a_world() -> None:
    outcome = play(3)
    assert play(3, outcome.made).digest == outcome.digest


REACHING = (
    *(53, 8, 11, 20, 29, 40, 43, 62, 63, 259),
    *(20_013, 20_007, 20_036, 20_204, 20_207, 20_218, 20_251, 20_326),
)
"""Seeds of worlds that reach all situations together. If the worlds change, others have to be found: until then
the test plays more.
"""


def test_situations_that_matter_come_about() -> None:
    seen: set[str] = set()
    for seed in (*REACHING, *range(20_200, 20_600)):
        seen |= play(seed).situations.keys()
        if seen.issuperset(SITUATIONS):
            return
    raise AssertionError(f"never: {sorted(set(SITUATIONS) - seen)}")


def test_shrinking_keeps_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world fails here where a person interrupts. Choices that do not matter for that are cut."""

    def interrupted(seed: int, given: object = None) -> Outcome:
        outcome = play(seed, given)  # type: ignore[arg-type]
        broken = any(name.startswith("interrupt while") for name in outcome.situations)
        return outcome.failing(("an interrupt",) if broken else ())

    monkeypatch.setattr("tests.simulation.shrink.play", interrupted)
    first = next(outcome for seed in range(200) if (outcome := interrupted(seed)).problems)
    given, last = shrink(first.seed, first, tell=lambda _: None, rounds=40)
    assert last.problems == ("an interrupt",)
    assert _count(given) < _count(first.made) / 4


def _count(choices: Choices) -> int:
    return sum(bool(choice) for each in choices.values() for choice in each)


def test_a_choice_that_is_cut_is_the_plainest() -> None:
    draws = Draws(1, {"x": [None, 2, 9]})
    assert [draws.pick("x", "abc") for _ in range(4)] == ["a", "c", "c", "a"]
    assert draws.made == {"x": [0, 2, 2, 0]}


def test_a_new_kind_of_choice_changes_no_other() -> None:
    alone, beside = Draws(1), Draws(1)
    drawn = []
    for _ in range(20):
        beside.pick("new", "ab")
        drawn.append(beside.pick("x", "abc"))
    assert drawn == [alone.pick("x", "abc") for _ in range(20)]


def test_worlds_leave_nothing_in_memory() -> None:
    """The first worlds may load and cache things; after that the same worlds leave nothing behind."""
    seeds = range(250 if LONG else 12)

    def objects() -> int:
        for seed in seeds:
            play(seed)
        gc.collect()
        return len(gc.get_objects())

    objects()
    before = objects()
    assert objects() - before < len(seeds)
