"""Commands that the model runs: many small ones, with and without the sandbox, and one with a large output."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import replies
from benchmarks.bench import Benchmark, Run, Watch

COMMANDS = 60
"""Number of commands in one turn. Each also costs a request to the model, which answers at once."""

NOTHING = ("/bin/sh", "-c", ":")
MUCH = ("/bin/sh", "-c", "yes 0123456789abcdef | head -c 67108864")


async def command(run: Run) -> Mapping[str, float]:
    wall, cpu = await _seconds_each(run, "danger-full-access")
    return {"command_s": wall, "command_cpu_s": cpu}


async def sandboxed(run: Run) -> Mapping[str, float]:
    wall, cpu = await _seconds_each(run, "workspace-write")
    return {"sandboxed_command_s": wall, "sandboxed_command_cpu_s": cpu}


async def output(run: Run) -> Mapping[str, float]:
    watch = Watch()
    async with run.server() as server:
        conversation = await server.open()
        await server.turn(conversation)
        run.model.replies.append(replies.command(*MUCH))
        with watch.timed():
            await server.turn(conversation)
        return {"output_64mib_s": watch.last, "output_64mib_rss_mb": server.rss()}


async def _seconds_each(run: Run, sandbox: str) -> tuple[float, float]:
    """Return wall time and processor time of one command in seconds, helpers and commands included."""
    watch = Watch()
    async with run.server(sandbox) as server:
        conversation = await server.open()
        await server.turn(conversation)
        run.model.replies.extend(replies.command(*NOTHING, call_id=f"call-{n}") for n in range(COMMANDS))
        cpu = server.tree_cpu()
        with watch.timed():
            await server.turn(conversation)
        return watch.last / COMMANDS, (server.tree_cpu() - cpu) / COMMANDS


COMMAND_BENCHMARKS = (
    Benchmark("command", command),
    Benchmark("sandboxed", sandboxed),
    Benchmark("output", output),
)
