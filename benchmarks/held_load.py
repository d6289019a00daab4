"""The held load: many conversations that stream at once for a minute, and whether every delta arrives, in order.

`python -m benchmarks.held_load` plays it with this checkout's server, and with the one that REFERENCE_CODEX names
where it does. The model is a process of its own, so that what is measured is the server.
"""

import argparse
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from benchmarks.model import model_process
from benchmarks.place import temporary_place
from benchmarks.processes import most_rss
from benchmarks.server import running

OURS = (str(Path(sys.executable).with_name("app-server")), "app-server")
TICKS = 20
"""Number of writes of a stream per second. Each holds the deltas of that time."""
DELTA = re.compile(rb'"agent_message_delta","delta":"([^"]*)"')
CONVERSATION = re.compile(rb'"conversationId":"([^"]+)"')
LATEST = 60
"""Time after the end of the streams until missing deltas count as lost, in seconds."""


@dataclass(frozen=True, slots=True)
class Shape:
    conversations: int = 100
    rate: int = 200
    """Number of deltas per second of each stream."""
    seconds: int = 60

    @property
    def deltas(self) -> int:
        return self.rate * self.seconds


# --- the client
@dataclass(slots=True)
class Heard:
    """Deltas that one server has sent."""

    next: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    """Next expected number, by conversation."""
    lines: int = 0
    wrong: list[str] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        self.lines += 1
        found = DELTA.search(line)
        conversation = CONVERSATION.search(line)
        if found is None or conversation is None:
            return
        id = conversation.group(1)
        for number in found.group(1).split():
            if int(number) != self.next[id] and len(self.wrong) < 10:
                self.wrong.append(f"{id.decode()}: {number.decode()} where {self.next[id]} was next")
            self.next[id] = int(number) + 1


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    seconds: float
    cpu: float
    megabytes: float
    lines: int
    lost: int
    wrong: tuple[str, ...]


async def play(name: str, command: Sequence[str], shape: Shape) -> Result:
    """Run the load on one server. The model counts at a steady pace, whatever the request."""
    said = f"paced(*counted({shape.deltas}, ''), gap={1 / TICKS}, together={shape.rate // TICKS})"
    with model_process(said) as url, temporary_place() as place:
        place.configure(url, "danger-full-access")
        async with running(command, place) as server:
            ids = [await server.open() for _ in range(shape.conversations)]
            heard = Heard()
            server.hear = heard.take
            cpu, began = server.cpu(), time.monotonic()
            with anyio.move_on_after(shape.seconds + LATEST):
                async with anyio.create_task_group() as group:
                    for id in ids:
                        group.start_soon(server.turn, id, name="turn")
            seconds, cpu = time.monotonic() - began, server.cpu() - cpu
            peak = most_rss(server.process.pid)
            server.process.kill()  # it may still have much to send
    lost = shape.deltas * shape.conversations - sum(heard.next.values())
    return Result(name, seconds, cpu, peak, heard.lines, lost, tuple(heard.wrong))


def table(results: list[Result], shape: Shape) -> str:
    head = (
        f"{shape.conversations} conversations, {shape.rate} deltas/s each, {shape.seconds} s: "
        f"{shape.conversations * shape.deltas:,} deltas\n\n"
        "| server | seconds | CPU seconds | peak MB | lines | missing | out of order |\n|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(
        f"| {r.name} | {r.seconds:.1f} | {r.cpu:.1f} | {r.megabytes:.0f} | {r.lines:,} | {r.lost} | {len(r.wrong)} |"
        for r in results
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("conversations", 100), ("rate", 200), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    shape = Shape(args.conversations, args.rate, args.seconds)
    results = [anyio.run(play, "app-server", OURS, shape)]
    if reference := os.environ.get("REFERENCE_CODEX"):
        results.append(anyio.run(play, "reference", (reference, "app-server"), shape))
    print(table(results, shape))  # noqa: T201  this is a command
    for result in results:
        for wrong in result.wrong:
            print(f"{result.name}: {wrong}")  # noqa: T201
    return int(bool(results[0].lost or results[0].wrong))


if __name__ == "__main__":
    sys.exit(main())
