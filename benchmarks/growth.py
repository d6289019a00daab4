"""Values that grow with a number: a longer conversation, or more open or stored ones.

Each table shows the cost of one more between two sizes. If that cost rises with the size, it grows faster than its
input.
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
    """Values at one size, in seconds or MiB, by name."""

    size: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Growth:
    name: str
    title: str
    of: str
    """Name of the thing whose number grows, in the singular."""
    sizes: Sequence[int]
    at: Callable[[Run, int], Awaitable[dict[str, float]]]
    memory: Sequence[str] = ()
    """Names of the values in MiB; the others are in seconds."""


async def conversation_length(run: Run, items: int) -> dict[str, float]:
    """Resume a conversation of `items` items, then run turns in it. The model is sent all of it each time."""
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
    """Open `count` conversations at once; run a turn in each, at once again; then one more turn in one of them,
    alone.
    """
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
    """Store `count` conversations on disk; read the first page, then all pages, then run a turn."""
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
    """Return a row for each size; in parentheses the cost of each one more since the size before."""
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
