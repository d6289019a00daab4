"""Profile of the time of one turn, one command or one delta.

Only the event loop's thread is profiled. The time of worker threads is the difference between the process's CPU time
and that thread's. Times come from runs without the profile and are divided by it, because a profile makes small
functions look slower than they are. Conversations stay short, so that their length does not count.
"""

from __future__ import annotations

import cProfile
import time
from dataclasses import dataclass, field

from benchmarks.inner import InnerClient, inner_server
from benchmarks.model import model_process
from benchmarks.place import temporary_place

CONVERSATIONS = 10
"""Number of conversations with the profile, and as many without. They alternate."""

DELTAS = 20_000


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a profile."""

    turns: int
    """Number of turns of each conversation."""
    each: int
    """Number of measured units in a turn."""
    replies: str
    """Replies that the model repeats, as code."""


SUBJECTS = {
    "turn": Subject(30, 1, "HELLO"),
    "command": Subject(20, 1, "command('/bin/sh', '-c', ':'), HELLO"),
    "delta": Subject(1, DELTAS, f"reply(*counted({DELTAS}))"),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """Time of one unit, in seconds."""

    wall: float
    loop: float
    """CPU time of the event loop's thread in seconds, the client of this measurement included."""
    threads: float
    """CPU time of all other threads, in seconds."""
    profiler: cProfile.Profile = field(repr=False)


async def profile(what: str) -> Spent:
    """Profile one of `SUBJECTS`."""
    subject = SUBJECTS[what]
    profiler = cProfile.Profile()
    spent = [0.0, 0.0, 0.0]
    with temporary_place() as place, model_process(subject.replies) as url:
        async with inner_server(place, url) as client:
            for _ in range(CONVERSATIONS):
                times = await _timed(client, subject)
                spent = [sum(each) for each in zip(spent, times, strict=True)]
                await _profiled(client, subject, profiler)
    wall, loop, process = (seconds / (CONVERSATIONS * subject.turns * subject.each) for seconds in spent)
    return Spent(wall, loop, process - loop, profiler)


async def _timed(client: InnerClient, subject: Subject) -> list[float]:
    """Return the times of the clock, of this thread, and of this process, in seconds."""
    conversation = await client.open()
    await client.turn(conversation)
    before = (time.perf_counter(), time.thread_time(), time.process_time())
    for _ in range(subject.turns):
        await client.turn(conversation)
    after = (time.perf_counter(), time.thread_time(), time.process_time())
    return [end - begin for begin, end in zip(before, after, strict=True)]


async def _profiled(client: InnerClient, subject: Subject, profiler: cProfile.Profile) -> None:
    conversation = await client.open()
    await client.turn(conversation)
    profiler.enable()
    for _ in range(subject.turns):
        await client.turn(conversation)
    profiler.disable()
