"""Rules for stored threads where writes fail for some time: nothing is lost once writes work again, half a line is
followed by the whole one, and the user is notified.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.stored import rollouts
from tests.support.invariants import rollout, unstored
from tests.support.thread_invariants import stored_otherwise

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

MOST_SILENT = 3
"""Maximum number of failures in a row to write a file without a notification. A failed write is retried in the same
step, or with the first event in a new thread.
"""

RESTLESS = {"leave", "resume", "archive", "rollback", "fork", "name"}
"""Deeds that close or open a thread while writes may fail, so that unwritten lines are lost, and one deed that writes
by itself and is answered with an error.
"""


def storage_rules(world: "SimWorld") -> Iterator[str]:
    """Yield violations in a world whose writes fail, and whose threads stay open until writes work again."""
    habits = world.habits
    comes_and_goes = habits.visitor or habits.comes_back or habits.company or RESTLESS & set(habits.deeds)
    if not habits.disk_faults or comes_and_goes or world.killed.is_set():
        return
    paths = rollouts(world.home / "sessions")
    for path in paths:
        yield from _glued(path)
    person = world.people[0]
    if person.api != "acp":
        yield from unstored(person.received(), {str(path): rollout(path)[0] for path in paths})
        yield from stored_otherwise(person.received(), paths)
    failed = world.writers.longest_failure
    if failed > MOST_SILENT and not any(
        "cannot be stored" in json.dumps(message) for message in person.received()
    ):
        yield f"{failed} writes of a file failed in a row, and the user was not told"


def _glued(path: Path) -> Iterator[str]:
    """Yield lines that are neither whole nor the beginning of the next one. A line that a disk took in part is written
    again, unless its turn was taken back meanwhile.
    """
    lines = path.read_bytes().splitlines()
    for line, following in zip(lines, [*lines[1:], b""], strict=True):
        with suppress(ValueError):
            json.loads(line)
            continue
        if b'"type":"thread_rolled_back"' in following and b'"kept_lines"' in following:
            continue
        if not (following.startswith(line) or (following and line.startswith(following))):
            yield f"{path.name} has a line that is damaged: {line[:100]!r}"
