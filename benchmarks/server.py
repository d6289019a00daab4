"""A server under load, as a process of its own, and the client that loads it.

Lines are told apart by their first bytes and only answers are parsed, so that the client takes as little time as
possible. An error event is an error here: the speed of a failing turn means nothing.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import Process

from app_server_protocol.encoding import Json
from benchmarks.place import Place
from benchmarks.processes import Footprint, cpu_seconds, footprint, rss, tree_cpu_seconds

PATIENCE = 300.0
LEAVES_WITHIN = 10.0
READ_SIZE = 1 << 18

ANSWER = b'{"id":'
REFUSAL = b'{"error":'
"""Beginning of an error answer if its members have another order."""
COMPLETE = b'"codex/event/task_complete"'
FAILED = b'"codex/event/error"'
DELTA = b'"codex/event/agent_message_delta"'


class ServerFailed(Exception):
    """The server answered with an error, or left."""


@dataclass(slots=True)
class _Wait:
    ended: anyio.Event = field(default_factory=anyio.Event)
    line: bytes = b""


@dataclass(slots=True)
class Server:
    process: Process
    place: Place
    start_seconds: float = 0.0
    """Time from its spawning to its answer to `initialize`, in seconds."""
    delta_at: list[float] = field(default_factory=list)
    """Time of arrival of each text delta, in seconds."""
    hear: Callable[[bytes], None] = lambda line: None
    """Function that gets each line."""
    _answers: dict[int, _Wait] = field(default_factory=dict)
    _turns: dict[str, _Wait] = field(default_factory=dict)
    _last_id: int = 0

    # --- sending
    async def ask(self, method: str, params: Json) -> bytes:
        """Send a request; return the answer's bytes."""
        assert self.process.stdin is not None
        self._last_id += 1
        id, wait = self._last_id, _Wait()
        self._answers[id] = wait
        await self.process.stdin.send(
            json.dumps({"id": id, "method": method, "params": params}).encode() + b"\n"
        )
        with anyio.fail_after(PATIENCE):
            await wait.ended.wait()
        if wait.line.startswith(b'{"id":%d,"result":' % id):
            return wait.line
        raise ServerFailed(f"{method}: {wait.line[:300].decode(errors='replace') or 'the server left'}")

    async def call(self, method: str, params: Json) -> Json:
        return json.loads(await self.ask(method, params))["result"]

    async def open(self, **params: Json) -> str:
        """Open a conversation and subscribe to its events; return its id."""
        made = await self.call("newConversation", {"cwd": str(self.place.workspace), **params})
        return await self.listen(made["conversationId"])

    async def listen(self, conversation: str) -> str:
        params = {"conversationId": conversation, "experimentalRawEvents": False}
        await self.ask("addConversationListener", params)
        return conversation

    async def turn(self, conversation: str) -> None:
        """Send a message, and wait until the turn is complete."""
        wait = self._turns[conversation] = _Wait()
        items = [{"type": "text", "data": {"text": "hi"}}]
        await self.ask("sendUserMessage", {"conversationId": conversation, "items": items})
        with anyio.fail_after(PATIENCE):
            await wait.ended.wait()
        if COMPLETE not in wait.line[:100]:
            raise ServerFailed(f"a turn: {wait.line[:300].decode(errors='replace') or 'the server left'}")

    # --- resources
    def cpu(self) -> float:
        return cpu_seconds(self.process.pid)

    def tree_cpu(self) -> float:
        return tree_cpu_seconds(self.process.pid)

    def rss(self) -> float:
        return rss(self.process.pid)

    def footprint(self) -> Footprint:
        return footprint(self.process.pid)

    # --- receiving
    async def read(self) -> None:
        assert self.process.stdout is not None
        unfinished: list[bytes] = []
        async for data in self.process.stdout:
            *whole, rest = data.split(b"\n")
            if whole:
                whole[0] = b"".join((*unfinished, whole[0]))
                unfinished = []
                for line in whole:
                    self._received(line)
            unfinished.append(rest)
        for wait in (*self._answers.values(), *self._turns.values()):
            wait.ended.set()

    def _received(self, line: bytes) -> None:
        self.hear(line)
        start = line[:100]
        if start.startswith(ANSWER):
            id = int(start[len(ANSWER) : start.index(b",")])
            self._end(self._answers.pop(id, None), line)
        elif start.startswith(REFUSAL):
            self._end(self._answers.pop(json.loads(line).get("id"), None), line)
        elif DELTA in start:
            self.delta_at.append(time.perf_counter())
        elif COMPLETE in start or FAILED in start:
            conversation = json.loads(line)["params"]["conversationId"]
            self._end(self._turns.pop(conversation, None), line)

    @staticmethod
    def _end(wait: _Wait | None, line: bytes) -> None:
        if wait is not None:
            wait.line = line
            wait.ended.set()


@asynccontextmanager
async def running(command: Sequence[str], place: Place) -> AsyncIterator[Server]:
    """Start the server of this command and initialize it. It has to leave by itself at the end of the block."""
    begin = time.perf_counter()
    process = await anyio.open_process(
        command, stderr=subprocess.DEVNULL, cwd=place.workspace, env=place.environment
    )
    server = Server(process, place)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(server.read, name="the client")
            await server.call("initialize", {"clientInfo": {"name": "bench", "version": "1"}})
            server.start_seconds = time.perf_counter() - begin
            yield server
            assert process.stdin is not None
            await process.stdin.aclose()
            with anyio.fail_after(LEAVES_WITHIN):
                await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
