"""Servers as processes of their own, several after or beside one another on one home: signals, pipes that close, a
client that stops reading, killed servers, and their effect on files.

Everything that a server starts has a mark in its environment; leftover processes are found by it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import Process

from app_server_protocol.encoding import Json
from tests.support.client import Client, ProcessWire
from tests.support.invariants import QUESTIONS, violated_invariants
from tests.support.processes import command_of, marked, memory
from tests.support.program import SCRIPT
from tests.support.scripted_model import ScriptedModel
from tests.support.world import LEAVES_WITHIN, make_folders, server_environment, write_config

LONG = os.environ.get("FAULTS") == "long"
MARK = "FAULTS_MARK"
OURS = (SCRIPT, "app-server")

WATCHER = """\
import json, os, sys

_calls = os.open(os.environ["WATCHED_CALLS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
_fsync = os.fsync


def _tell(call, path):
    os.write(_calls, json.dumps([call, path]).encode() + b"\\n")


def fsync(fd):
    _fsync(fd)
    _tell("fsync", os.readlink(f"/proc/self/fd/{fd}"))


os.fsync = fsync
"""
"""A `sitecustomize` that records each fsync after it is done."""


@dataclass(slots=True)
class Place:
    """A home, a workspace, a model, and the settings with which a server starts there."""

    root: Path
    model: ScriptedModel = field(default_factory=ScriptedModel)
    url: str = "http://127.0.0.1:1/v1"
    environment: dict[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    """Names of variables that the server's environment lacks."""
    approval: str = "never"
    sandbox: str = "danger-full-access"
    tables: str = ""
    """Additional text of config.toml, after the provider's table."""

    def __post_init__(self) -> None:
        make_folders(self.root)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    def configure(self) -> None:
        config: Json = {"approval_policy": self.approval, "sandbox_mode": self.sandbox}
        write_config(self.home, self.url, config, tables=self.tables)

    @asynccontextmanager
    async def serving_model(self) -> AsyncIterator[None]:
        """Serve the model and configure it for the servers that start in the block."""
        async with self.model.serving() as self.url:
            self.configure()
            yield

    def variables(self, mark: str = "") -> Mapping[str, str]:
        given = server_environment(
            self.root, **{MARK: mark}, **{"PYTHONFAULTHANDLER": "1"} | self.environment
        )
        return {name: value for name, value in given.items() if name not in self.without}

    def rollouts(self) -> list[Path]:
        return sorted(self.home.glob("sessions/**/rollout-*.jsonl"))

    def watch(self) -> None:
        """Record the system calls of all servers that start from now on."""
        (self.root / "watcher").mkdir()
        (self.root / "watcher" / "sitecustomize.py").write_text(WATCHER)
        self.environment |= {
            "PYTHONPATH": str(self.root / "watcher"),
            "WATCHED_CALLS": str(self.root / "calls"),
        }

    def calls(self, name: str) -> list[str]:
        """Return the paths of the recorded calls of that name so far."""
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [where for call, where in map(json.loads, lines) if call == name]

    def server(
        self, *, command: Sequence[str] = OURS, initialize: bool = True
    ) -> AbstractAsyncContextManager[Served]:
        return served(self, command=command, initialize=initialize)


@dataclass(slots=True)
class Served:
    """A running server and its client."""

    place: Place
    process: Process
    wire: ProcessWire
    client: Client
    mark: str

    async def open(self, **params: Json) -> str:
        return await self.client.open(cwd=str(self.place.workspace), **params)

    async def close_stdout(self) -> None:
        """Close the pipe to which the server writes. It is closed when this returns."""
        # The `aclose` of anyio only forbids further reads.
        process = self.process._process  # type: ignore[attr-defined]
        pipe = process._transport.get_pipe_transport(1)
        pipe.close()
        while pipe._pipe is not None:
            await anyio.lowlevel.checkpoint()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    def memory(self) -> int:
        """Return the memory that the server uses now, in bytes."""
        return memory(self.process.pid)

    def descriptors(self) -> list[str]:
        """Return the files that the server has open. Only root can read them, because the server is not dumpable."""
        found = []
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                found.append(os.readlink(path))
            except OSError:
                continue
        return found

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    async def gone(self) -> int:
        """Wait until the server and everything that it started has ended; return its exit status."""
        status = None
        with anyio.move_on_after(LEAVES_WITHIN):
            status = await self.process.wait()
        if status is None:
            if Path(f"/proc/{self.process.pid}").exists():
                self.process.send_signal(signal.SIGABRT)  # it writes its stacks to the log
                await self.process.wait()
            raise AssertionError(f"the server did not end\n{self.place.log.read_text()[-4000:]}")
        await nothing_left(self.mark)
        return status


async def nothing_left(mark: str) -> None:
    left: set[int] = set()
    with anyio.move_on_after(5):
        while left := marked(f"{MARK}={mark}"):  # noqa: ASYNC110  processes set no event
            await anyio.sleep(0.02)
    assert not left, [f"{pid} {command_of(pid)}" for pid in left]


@asynccontextmanager
async def served(
    place: Place,
    *,
    command: Sequence[str] = OURS,
    initialize: bool = True,
    wiring: Callable[[Process], ProcessWire] = ProcessWire,
) -> AsyncIterator[Served]:
    """Start a server. At the end of the block its client leaves if the server still runs, and the server has to end by
    itself and leave nothing behind. A server that the block has killed may leave anything.
    """
    mark = secrets.token_hex(8)
    with place.log.open("ab") as log:
        process = await anyio.open_process(
            command, stderr=log, env=place.variables(mark), cwd=place.workspace
        )
    wire = wiring(process)
    client = Client(wire)
    server = Served(place, process, wire, client, mark)

    async def read() -> None:
        try:
            await client.read()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # the test has closed it already

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(read, name="client")
            if initialize:
                await client.initialize()
            yield server
            for question in QUESTIONS:
                client.decide(question, lambda request: None)  # leave it open: no server would get the answer
            if process.returncode is None:
                client.read_on()
                await wire.close()
                assert await server.gone() == 0, place.log.read_text()[-2000:]
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@asynccontextmanager
async def place_in(root: Path, *, approval: str = "never", tables: str = "") -> AsyncIterator[Place]:
    """Yield a configured place with a model that is served."""
    place = Place(root, approval=approval, tables=tables)
    async with place.serving_model():
        yield place


@asynccontextmanager
async def conversing(place: Place, model: ScriptedModel) -> AsyncIterator[Served]:
    """Run a configured server with its model; check the invariants of every conversation at the end."""
    place.model = model
    async with place.serving_model(), served(place) as server:
        yield server
    broken = violated_invariants(server.client, place.model.requests, place.rollouts())
    assert not broken, "\n".join([*broken, *server.client.tail()])
