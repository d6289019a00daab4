"""The cost of `app-server inspect` for a stream: the same turn with and without it, alternately, as a ratio of wall
times.

`saturated` is a stream as fast as the server writes it, `paced` one as fast as a fast model writes it. Each is measured
with a page that no browser has open, and with a recording.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import replies
from benchmarks.bench import Run, Watch
from benchmarks.compare import OURS, Say, sides
from benchmarks.figures import Unit, written
from benchmarks.model import PreparedModel
from benchmarks.place import temporary_place
from benchmarks.replies import Reply
from benchmarks.report import Table

SATURATED = 20_000
PACED = 400
GAP = 0.0025
"""Pause between two deltas in seconds: 400 deltas a second, more than models write."""
TURNS = 3
"""Number of turns of one server. The fastest counts, because other load of the machine only makes them slower."""


STREAMS: Mapping[str, Callable[[], Reply]] = {
    "saturated": lambda: replies.reply(*replies.counted(SATURATED)),
    "paced": lambda: replies.paced(*replies.counted(PACED), gap=GAP),
}


async def seconds(command: Sequence[str], reply: Reply) -> float:
    """Return the time of the fastest of some turns, in seconds."""
    watch, model = Watch(), PreparedModel()
    with temporary_place() as place:
        async with model.serving() as url, Run(command, place, model, url).server() as server:
            conversation = await server.open()
            await server.turn(conversation)
            for _ in range(TURNS):
                model.replies.append(reply)
                with watch.timed():
                    await server.turn(conversation)
    return min(watch.seconds)


async def table(only: str, rounds: int, say: Say) -> Table:
    """Return the times without and with inspection in seconds, and their ratio, for the streams with `only` in their
    names, and for each way to inspect.

    The values are medians of the rounds.
    """
    bare = sides()[OURS]
    script = str(Path(sys.executable).with_name("app-server"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        inspected = {
            "page": (script, "inspect", "--", *bare),
            "recording": (script, "inspect", "--record", f"{folder}/session.jsonl", "--", *bare),
        }
        for name, make in [each for each in STREAMS.items() if only in each[0]]:
            for way, command in inspected.items():
                rows.append([f"{name}, {way}", *await _compare(bare, command, make(), rounds)])
                say(*rows[-1])
    return [("stream", "without", "with", "ratio"), *rows]


async def _compare(bare: Sequence[str], inspected: Sequence[str], reply: Reply, rounds: int) -> list[str]:
    found: dict[bool, list[float]] = {False: [], True: []}
    for round in range(rounds):
        for with_it in (False, True) if round % 2 == 0 else (True, False):
            found[with_it].append(await seconds(inspected if with_it else bare, reply))
    ratios = [b / a for a, b in zip(found[False], found[True], strict=True)]
    times = [written(statistics.median(found[each]), Unit.SECONDS) for each in (False, True)]
    return [*times, f"{statistics.median(ratios):.3f}"]
