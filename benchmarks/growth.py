"""What gets slower or bigger as there is more of something: a longer conversation, more of them open or stored.

Each table says what one more costs between two sizes; where that number climbs with the size, something grows
faster than its input.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from benchmarks.bench import Benchmark, Run, Watch
from benchmarks.compare import Say, once
from benchmarks.figures import Unit, written
from benchmarks.report import Table
from benchmarks.stored import store, store_one

SIZES = (1, 10, 100, 1_000, 10_000)
TURNS = 9


@dataclass(frozen=True, slots=True)
class Point:
    """At one size: seconds or MiB by what they are of."""

    size: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Growth:
    name: str
    title: str
    of: str
    """What there is more and more of, in the singular."""
    sizes: Sequence[int]
    at: Callable[[Run, int], Awaitable[dict[str, float]]]
    memory: Sequence[str] = ()
    """Which of the values are MiB; the others are seconds."""


async def conversation_length(run: Run, items: int) -> dict[str, float]:
    """A conversation of so many items is resumed, then talked to. The model is sent all of it each time."""
    path = store_one(run.place.home, items // 2)
    resumed, took = Watch(), Watch()
    async with run.server() as server:
        await server.turn(await server.open())
        with resumed.timed():
            found = await server.call("resumeConversation", {"path": str(path)})
        conversation = await server.listen(found["conversationId"])
        await server.turn(conversation)
        cpu = server.cpu()
        for _ in range(TURNS):
            with took.timed():
                await server.turn(conversation)
        spent = (server.cpu() - cpu) / TURNS
        turn = statistics.median(took.seconds)
        return {"resume": resumed.last, "turn": turn, "CPU": spent, "memory": server.rss()}


async def open_conversations(run: Run, count: int) -> dict[str, float]:
    """So many are opened at once; each then has a turn, at once again; then one of them another, alone."""
    opening, talking, alone = Watch(), Watch(), Watch()
    conversations: list[str] = []
    async with run.server() as server:
        await server.open()

        async def open_one() -> None:
            conversations.append(await server.open())

        with opening.timed():
            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(open_one, name="open")
        held, cpu = server.rss(), server.cpu()
        with talking.timed():
            async with anyio.create_task_group() as group:
                for conversation in conversations:
                    group.start_soon(server.turn, conversation, name="turn")
        after, spent = server.rss(), server.cpu() - cpu
        for _ in range(TURNS):
            with alone.timed():
                await server.turn(conversations[0])
        return {
            "open all": opening.last,
            "a turn of each": talking.last,
            "CPU": spent,
            "a turn of one": statistics.median(alone.seconds),
            "memory, opened": held,
            "memory, after turns": after,
        }


async def stored_conversations(run: Run, count: int) -> dict[str, float]:
    """So many lie on disk; the first page is read, then all pages, then a turn taken."""
    store(run.place.home, count)
    first, everything, took = Watch(), Watch(), Watch()
    async with run.server() as server:
        await server.turn(await server.open())
        with first.timed():
            page = await server.call("listConversations", {"pageSize": 50})
        cpu = server.cpu()
        with everything.timed():
            while page["nextCursor"]:
                asked = {"pageSize": 100, "cursor": page["nextCursor"]}
                page = await server.call("listConversations", asked)
        spent = server.cpu() - cpu
        conversation = await server.open()
        for _ in range(TURNS):
            with took.timed():
                await server.turn(conversation)
        return {
            "first page": first.last,
            "all other pages": everything.last,
            "CPU": spent,
            "turn": statistics.median(took.seconds),
            "memory": server.rss(),
        }


GROWTHS = (
    Growth("length", "Length of a conversation", "item", SIZES[1:], conversation_length, ("memory",)),
    Growth(
        "open",
        "Open conversations",
        "conversation",
        SIZES[:-1],
        open_conversations,
        ("memory, opened", "memory, after turns"),
    ),
    Growth("stored", "Stored conversations", "conversation", SIZES, stored_conversations, ("memory",)),
)


async def grow(growth: Growth, command: Sequence[str], rounds: int, say: Say) -> list[Point]:
    points = []
    for size in growth.sizes:
        measured: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, value in (await _at(growth, size, command)).items():
                measured.setdefault(name, []).append(value)
        points.append(Point(size, {name: statistics.median(each) for name, each in measured.items()}))
        say(f"{growth.name}: {size}: done")
    return points


async def _at(growth: Growth, size: int, command: Sequence[str]) -> Mapping[str, float]:
    async def run(run: Run) -> Mapping[str, float]:
        return await growth.at(run, size)

    return await once(Benchmark(growth.name, run), command)


def table(growth: Growth, points: Sequence[Point]) -> Table:
    """A row for each size; in parentheses what each one more has cost since the size before."""
    names = list(points[0].values)
    rows = [(f"{growth.of}s", *names)]
    for n, point in enumerate(points):
        before = points[n - 1] if n else None
        cells = [_cell(growth, name, point, before) for name in names]
        rows.append((f"{point.size:,}", *cells))
    return rows


def _cell(growth: Growth, name: str, point: Point, before: Point | None) -> str:
    unit = Unit.MEBIBYTES if name in growth.memory else Unit.SECONDS
    value = written(point.values[name], unit)
    if before is None:
        return value
    each = (point.values[name] - before.values[name]) / (point.size - before.size)
    return f"{value} ({_marginal(each, unit)})"


def _marginal(each: float, unit: Unit) -> str:
    if unit is Unit.MEBIBYTES:
        return f"{each * 1024:+.1f} KiB"
    return f"{each * 1e6:+.1f} µs"
