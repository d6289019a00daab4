"""Workers as actors of a Ray cluster, one per node (the extra `ray`).

An actor runs the same process as on one machine, and passes its lines on. Keys come from the node's own home and
environment, and are not in any data that Ray receives. app-server must be installed on every node. If an actor dies,
another is started on a node without one. If there is no such node, the start waits for one. Its tasks are given to
other workers until then.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from app_server.cli.batch.local import COMMAND, LONGEST_LINE, Workers
from app_server.client.command_line import InvalidCommandLine
from app_server_protocol.framing import LineDecoder, Oversized, Transport

LOOKS_EVERY: Final = 1.0
ENDS_WITHIN: Final = 5.0


class NodeWorker:
    """The actor of a node. Two calls run at once: one that waits for lines, one that writes."""

    def __init__(self, node: str) -> None:
        # stderr is discarded, because Ray would write it to its logs.
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            (*COMMAND, node), stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def receive(self) -> bytes:
        return os.read(self._stdout.fileno(), 1 << 20)

    def send(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def end(self) -> None:
        self._stdin.close()
        self._process.wait(ENDS_WITHIN)


def ray_workers(address: str) -> Workers:
    """Return a worker for each node that is alive now. `address` is that of a cluster. If it is empty, Ray uses the
    cluster that it finds here, or one of this machine alone. Raises InvalidCommandLine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address or None, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RayError, ValueError) as error:
        raise InvalidCommandLine(f"--ray {address}: {error}") from None
    taken: set[str] = set()

    @asynccontextmanager
    async def connect() -> AsyncIterator[Transport]:
        while not (free := _alive_nodes() - taken):  # noqa: ASYNC110  Ray sets no event
            await anyio.sleep(LOOKS_EVERY)
        node = min(free)
        taken.add(node)
        options: Mapping[str, Any] = {
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
            "num_cpus": 0,
            "max_concurrency": 2,
            "max_restarts": 0,  # the actor is restarted in the same way as a process
            "max_task_retries": 0,
        }
        actor = ray.remote(NodeWorker).options(**options).remote(node)
        try:
            yield ActorLink(actor)
        finally:
            taken.discard(node)
            with anyio.move_on_after(ENDS_WITHIN + 1, shield=True):
                await _answer(actor.end)
            ray.kill(actor)

    return Workers(len(_alive_nodes()), connect)


class ActorLink:
    """The process of an actor, as a transport."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        decoder = LineDecoder(LONGEST_LINE)
        while data := await _answer(self._actor.receive):
            yield decoder.feed(data)

    async def write(self, data: bytes) -> None:
        await _answer(self._actor.send, data)


async def _answer(method: Any, *arguments: bytes) -> bytes:
    """Call a method of an actor. Return nothing if the actor has died."""
    try:
        return await method.remote(*arguments) or b""
    except RayError:
        return b""


def _alive_nodes() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
