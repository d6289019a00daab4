"""Starting a server, opening conversations, running turns and streaming; alone and a hundred at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

import anyio

from benchmarks import replies
from benchmarks.bench import Benchmark, Run, Watch
from benchmarks.server import ServerFailed

TURNS = 30
CONVERSATIONS = 100
DELTAS = 20_000
PACED_DELTAS = 200
GAP = 0.003
"""Pause between two deltas whose delay is measured, in seconds. It is longer than the delay, so that each delta is
alone.
"""


async def start(run: Run) -> Mapping[str, float]:
    """Measure the time until `initialize` is answered, and until there is a conversation: modules that are loaded later
    count too.
    """
    begin = time.perf_counter()
    async with run.server() as server:
        measured = {"start_s": server.start_seconds}
        try:
            await server.open()
        except ServerFailed:
            return measured  # a later reference has another API
        return measured | {"ready_s": time.perf_counter() - begin, "idle_rss_mb": server.rss()}


async def turn(run: Run) -> Mapping[str, float]:
    made, took = Watch(), Watch()
    async with run.server() as server:
        for _ in range(10):
            with made.timed():
                conversation = await server.open()
        await server.turn(conversation)
        cpu = server.cpu()
        for _ in range(TURNS):
            with took.timed():
                await server.turn(conversation)
        return {
            "new_conversation_s": statistics.median(made.seconds),
            "turn_s": statistics.median(took.seconds),
            "turn_p95_s": sorted(took.seconds)[round(TURNS * 0.95) - 1],
            "turn_cpu_s": (server.cpu() - cpu) / TURNS,
        }


async def stream(run: Run) -> Mapping[str, float]:
    """Measure a stream that is sent as fast as the server accepts it."""
    watch, body = Watch(), replies.reply(*replies.counted(DELTAS))
    async with run.server() as server:
        conversation = await server.open()
        await server.turn(conversation)
        run.model.replies.append(body)
        cpu, before = server.cpu(), len(server.delta_at)
        with watch.timed():
            await server.turn(conversation)
        return {
            "stream_20k_s": watch.last,
            "stream_20k_cpu_s": server.cpu() - cpu,
            "stream_20k_lines": len(server.delta_at) - before,
        }


async def delta(run: Run) -> Mapping[str, float]:
    """Measure deltas one at a time, from the model's write to the client's line; return the median."""
    async with run.server() as server:
        conversation = await server.open()
        await server.turn(conversation)
        server.delta_at.clear()
        run.model.sent_at.clear()
        run.model.replies.append(replies.paced(*replies.counted(PACED_DELTAS), gap=GAP))
        await server.turn(conversation)
        # The first two pieces open the reply and its message.
        sent = run.model.sent_at[2 : 2 + PACED_DELTAS]
        ways = [came - left for left, came in zip(sent, server.delta_at, strict=True)]
        return {"delta_s": statistics.median(ways)}


async def many(run: Run) -> Mapping[str, float]:
    watch = Watch()
    conversations: list[str] = []
    async with run.server() as server:

        async def open_one() -> None:
            conversations.append(await server.open())

        with watch.timed():
            async with anyio.create_task_group() as group:
                for _ in range(CONVERSATIONS):
                    group.start_soon(open_one, name="open")
        opened = watch.last
        with watch.timed():
            async with anyio.create_task_group() as group:
                for conversation in conversations:
                    group.start_soon(server.turn, conversation, name="turn")
        held = server.footprint()
        return {
            "open_100_s": opened,
            "turn_100_s": watch.last,
            "rss_100_mb": held.rss,
            "tree_100_mb": held.tree,
        }


TURN_BENCHMARKS = (
    Benchmark("start", start),
    Benchmark("turn", turn),
    Benchmark("delta", delta),
    Benchmark("stream", stream),
    Benchmark("many", many),
)
