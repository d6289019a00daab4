"""Plays steps as a client of a server that it starts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
from anyio.abc import Process

from app_server.cli.inspect.analysis import SessionEntry
from app_server.cli.inspect.line_store import EntryStore, Intake
from app_server.cli.inspect.scenario import (
    Counted,
    Names,
    Receive,
    Send,
    Step,
    differences,
    key_of_any,
    steps_of,
    unmet,
)
from app_server.cli.inspect.session_records import (
    MAX_SESSION_BYTES,
    Frame,
    Recorder,
    SessionHead,
    Source,
    decoded,
    read_session,
)
from app_server.cli.inspect.shapes import UNKNOWN_METHOD
from app_server.cli.named_files import read_input
from app_server_protocol.encoding import Json
from app_server_protocol.framing import LineDecoder

PATIENCE = 30.0
"""Timeout of the wait for one step, in seconds."""
LEAVES_WITHIN = 10.0


def play(server: Sequence[str], steps: Sequence[Step]) -> list[str]:
    """Return the problems: messages that never came, and broken rules. Exported tests call it."""
    store = EntryStore(SessionHead(server, ""))
    anyio.run(replay, server, None, steps, store)
    return problems_of(store.all())


def play_file(path: Path, server: Sequence[str], recorder: Recorder | None) -> list[str]:
    """Play the client of a session file and return the problems. Raises OSError, or NotASession."""
    head, records = read_session(read_input(path, most=MAX_SESSION_BYTES).decode("utf-8", "replace"))
    store = EntryStore(SessionHead(server, head.began))
    anyio.run(replay, server, None, steps_of(records), store)
    if recorder is not None:
        recorder.write(entry.record for entry in store.all())
    return problems_of(store.all())


def problems_of(entries: Sequence[SessionEntry]) -> list[str]:
    violations = [violation for entry in entries for violation in entry.violations]
    found = [f"{rule}: {problem}" for rule, problem in violations if rule != UNKNOWN_METHOD]
    events = [entry.record.value() for entry in entries if entry.kind == "event"]
    return found + [each["message"] for each in events if each["event"] == "problem"]


async def replay(
    server: Sequence[str],
    environment: Mapping[str, str] | None,
    steps: Sequence[Step],
    store: EntryStore,
) -> None:
    """Play the steps, and fill the store with all messages. It raises nothing: problems are entries."""
    intake = Intake(store)
    begin = time.monotonic_ns()

    def take(source: Source, data: bytes) -> None:
        intake.take([Frame(source, time.monotonic_ns() - begin, data)])

    def record(event: str, **details: Json) -> None:
        take(Source.INSPECTOR, json.dumps({"event": event, **details}).encode())

    try:
        process = await anyio.open_process(server, env=environment, stderr=subprocess.PIPE)
    except OSError as error:
        record("problem", message=f"cannot start {server[0]}: {error.strerror}")
        store.end()
        return
    record("started", process=process.pid)
    player = _Player(process, take, steps)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(player.read_stderr, name="stderr")
            group.start_soon(player.read, name="server")
            problem = await player.play()
            if problem:
                record("problem", message=problem)
            await player.leave()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            record("exited", status=await process.wait())
            await process.aclose()
            store.end()


class _Player:
    """The client of a replay."""

    def __init__(
        self, process: Process, take: Callable[[Source, bytes], None], steps: Sequence[Step]
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._take, self._steps = process, take, steps
        receives = (step for step in steps if isinstance(step, Receive))
        self._expected = {step.place for step in receives if step.expected is not None}
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._counted, self._names = Counted(), Names()
        self._received: dict[tuple[str, str, int], Json] = {}
        self._arrived = anyio.Event()
        self._closed = False

    async def read(self) -> None:
        decoder = LineDecoder()
        async for data in self._stdout:
            self._take(Source.SERVER, data)
            for line in decoder.feed(data):
                if isinstance(line, bytes):
                    self._count(line)
            self._wake()
        self._take(Source.SERVER, b"")
        self._closed = True
        self._wake()

    async def read_stderr(self) -> None:
        async for data in self._stderr:
            self._take(Source.STDERR, data)
        self._take(Source.STDERR, b"")

    def _count(self, line: bytes) -> None:
        try:
            message = decoded(line.decode("utf-8", "replace"))
        except ValueError:
            return
        if isinstance(message, dict):
            waited = self._counted.see(False, message)
            key = waited or key_of_any(message)
            place = *key, self._counted.counts[key]
            if waited or place in self._expected:
                self._received[place] = message

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = anyio.Event()

    async def play(self) -> str:
        """Play the steps. Return the problem, or an empty text."""
        for step in self._steps:
            match step:
                case Receive():
                    with anyio.move_on_after(PATIENCE):
                        await self._wait(step)
                    if unmet(step, self._counted.counts):
                        which = f" {step.which}" if step.which else ""
                        why = "the server left" if self._closed else f"not within {PATIENCE:g} s"
                        return f"{step.kind}{which}, number {step.count}, never came: {why}"
                    found = self._received.get(step.place)
                    if step.expected is not None and (differs := differences(step.expected, found)):
                        return "; ".join(differs)
                case Send():
                    try:
                        await self._send(step)
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return "the server reads no more"
        return ""

    async def _wait(self, step: Receive) -> None:
        while unmet(step, self._counted.counts) and not self._closed:
            await self._arrived.wait()
        now = self._received.get(step.place)
        if step.sample is not None and now is not None:
            self._names.learn(step.sample, now)

    async def _send(self, step: Send) -> None:
        message = step.message
        if isinstance(message, str):
            line = message
        else:
            message = self._names.put_into(message)
            if step.to is not None and (asked := self._received.get(("request", *step.to))) is not None:
                message = {**message, "id": asked["id"]}
            self._counted.see(True, message)
            line = json.dumps(message)
        data = line.encode("utf-8", "replace") + b"\n"
        self._take(Source.CLIENT, data)
        await self._stdin.send(data)

    async def leave(self) -> None:
        self._take(Source.CLIENT, b"")
        await self._stdin.aclose()
        with anyio.move_on_after(LEAVES_WITHIN):
            await self._process.wait()
            return
        self._process.kill()
