"""Many turns of one server, whose resources must not grow.

Each conversation has some turns, the first with a command, and is archived before the next one is opened, so that
nothing of it has a reason to stay.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import replies
from benchmarks.bench import Run
from benchmarks.compare import Say
from benchmarks.figures import Unit, written
from benchmarks.model import PreparedModel
from benchmarks.place import temporary_place
from benchmarks.processes import Footprint
from benchmarks.report import Table
from benchmarks.server import Server

EVERY = 1_000
TURNS_EACH = 20
WARM_UP = 100
"""Number of turns before the first mark, in which modules are loaded and helpers started."""
NOTHING = ("/bin/sh", "-c", ":")


@dataclass(frozen=True, slots=True)
class Mark:
    """Measurement after a number of turns."""

    turns: int
    seconds_each: float
    """Time of a turn since the last mark in seconds, openings and archivings included."""
    held: Footprint


async def soak(command: Sequence[str], turns: int, say: Say) -> list[Mark]:
    model = PreparedModel()
    with temporary_place() as place:
        async with model.serving() as url, Run(command, place, model, url).server() as server:
            await _some(server, model, WARM_UP)
            marks = [Mark(0, 0.0, server.footprint())]
            while marks[-1].turns < turns:
                due = min(EVERY, turns - marks[-1].turns)
                begin = time.perf_counter()
                await _some(server, model, due)
                each = (time.perf_counter() - begin) / due
                marks.append(Mark(marks[-1].turns + due, each, server.footprint()))
                say("  ".join(_cells(marks[-1])))
            return marks


async def _some(server: Server, model: PreparedModel, turns: int) -> None:
    for done in range(0, turns, TURNS_EACH):
        made = await server.call("newConversation", {"cwd": str(server.place.workspace)})
        conversation = await server.listen(made["conversationId"])
        model.replies.append(replies.command(*NOTHING))
        for _ in range(min(TURNS_EACH, turns - done)):
            await server.turn(conversation)
        left = {"conversationId": conversation, "rolloutPath": made["rolloutPath"]}
        await server.ask("archiveConversation", left)


def table(marks: Sequence[Mark]) -> Table:
    head = ("turns", "a turn", "memory", "with helpers", "descriptors", "threads", "processes")
    return [head, *map(_cells, marks)]


def _cells(mark: Mark) -> tuple[str, ...]:
    held = mark.held
    each = written(mark.seconds_each, Unit.SECONDS) if mark.turns else "–"
    sizes = (written(held.rss, Unit.MEBIBYTES), written(held.tree, Unit.MEBIBYTES))
    return (f"{mark.turns:,}", each, *sizes, *map(str, (held.descriptors, held.threads, held.processes)))
