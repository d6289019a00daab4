"""The world of a scenario: a home, a workspace, a scripted model, the whole server, and a client.

`async with world(reply(says("Hello"))) as w` runs the server in this process, or as a process of its own with
`transport="process"`. When the block ends the client leaves, the server has to end by itself, and the recorded messages
are checked against the invariants of every conversation.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypedDict, Unpack

import anyio
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup

from app_server.engine.support.limits import limits_of
from app_server.engine.system_ports import SystemPorts
from app_server.server.composition import Server, open_server
from app_server.server.server_settings import ClientSettings, ServerSettings
from app_server.server.transport.memory import memory_pair
from app_server_protocol.encoding import Json
from tests.support.client import Client, MemoryWire, ProcessWire
from tests.support.invariants import violated_by_client, violated_invariants
from tests.support.leftovers import leaks, look
from tests.support.scripted_model import Reply, ScriptedModel
from tests.support.thread_invariants import violated_session_invariants

WHOLE_SCENARIO = 60.0
LEAVES_WITHIN = 10.0
"""Maximum time for a server to end once its client has left, in seconds. A loaded machine is slow to reap."""

MARK = "SCENARIO_MARK"
PATH = os.environ.get("PATH", os.defpath)

Transport = Literal["memory", "process"]
EXPERIMENTAL: Json = {"experimentalApi": True}
NOTHING: Mapping[str, Any] = {}


@dataclass(slots=True)
class World:
    root: Path
    model: ScriptedModel
    client: Client
    environment: Mapping[str, str] = field(default_factory=dict)
    in_process: Server | None = None
    """Server of this world. None if it runs as a process."""
    machine: SystemPorts = SystemPorts()
    """Machine of the server, unless it runs as a process."""
    others: list[Client] = field(default_factory=list)
    """Clients besides the first one."""

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        return self.root / "home"

    async def open(self, *, raw: bool = False, **params: Json) -> str:
        """Open a new conversation in the workspace and subscribe to its events; return its id."""
        return await self.client.open(raw=raw, cwd=str(self.workspace), **params)

    def user_turn(self, conversation: str, text: str = "hi", **over: Json) -> Json:
        """Return the parameters of `sendUserTurn`."""
        return {
            "conversationId": conversation,
            "items": [{"type": "text", "data": {"text": text}}],
            "cwd": str(self.workspace),
            "approvalPolicy": "never",
            "sandboxPolicy": {"mode": "danger-full-access"},
            "model": "scripted",
            "effort": None,
            "summary": "auto",
            **over,
        }

    @asynccontextmanager
    async def another(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        acp: bool = False,
        brings_environment: bool = True,
        has_cwd: bool = True,
        receives_all_threads: bool = False,
        buffered: float = math.inf,
        initialize: bool = True,
        name: str = "tests",
        capabilities: Json = None,
    ) -> AsyncIterator[Client]:
        """Connect another client to the server until the block ends. `environment` is added to that of the first
        client. `buffered` is the number of the server's writes that may wait for the client to read.
        """
        assert self.in_process is not None
        server_end, client_end = memory_pair(buffered=buffered)
        client = Client(MemoryWire(client_end))
        self.others.append(client)
        place = ClientSettings(
            home=self.home,
            cwd=cwd or self.workspace,
            environment={**self.environment, **(environment or {})},
            acp=acp,
            brings_environment=brings_environment,
            has_cwd=has_cwd,
            receives_all_threads=receives_all_threads,
            shared=True,
        )
        served = anyio.Event()
        server = self.in_process

        async def run() -> None:
            await server.serve(server_end, place)
            server_end.close()
            served.set()

        async with anyio.create_task_group() as group:
            group.start_soon(run, name="a connection")
            group.start_soon(client.read, name="a client")
            if initialize and not acp:
                can = {} if capabilities is None else {"capabilities": capabilities}
                await client.initialize(clientInfo={"name": name, "version": "1.0"}, **can)
            yield client
            await client.wire.close()
            with anyio.fail_after(LEAVES_WITHIN):
                await served.wait()
            group.cancel_scope.cancel()

    def write(self, files: Mapping[str, str | bytes], under: Path | None = None) -> None:
        write_files(under or self.workspace, files)

    def fifo(self, name: str) -> None:
        """Make a FIFO in the workspace, at which a command waits for a line."""
        os.mkfifo(self.workspace / name)

    async def open_gate(self, name: str) -> None:
        def write() -> None:
            with (self.workspace / name).open("w") as gate:
                gate.write("go\n")

        await anyio.to_thread.run_sync(write)

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
        done = subprocess.run(
            ("git", *identity, *arguments),
            cwd=cwd or self.workspace,
            env={"PATH": PATH, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def repository(self) -> None:
        """Make the workspace a git repository in which everything is committed."""
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "start")

    def rollouts(self) -> list[Path]:
        return sorted(self.home.glob("sessions/**/rollout-*.jsonl"))


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def make_folders(root: Path) -> None:
    for folder in ("home", "workspace", "user"):
        (root / folder).mkdir(exist_ok=True, parents=True)


def plain_environment(home: Path, **more: str) -> dict[str, str]:
    """Return the variables that a server needs."""
    return {
        "PATH": PATH,
        "HOME": str(home.parent),
        "CODEX_HOME": str(home),
        "NO_PROXY": "127.0.0.1",
        **more,
    }


def user_environment(root: Path, **more: str) -> dict[str, str]:
    """Return the variables of a user who has no other folder."""
    return {"PATH": PATH, "HOME": str(root), "LANG": "C.UTF-8", "TMPDIR": str(root)} | more


def server_environment(root: Path, **more: str) -> dict[str, str]:
    """Return the variables of a server whose folders `make_folders` made."""
    return plain_environment(root / "home", **{"HOME": str(root / "user"), "LANG": "C.UTF-8", **more})


KNOWN_MODEL: Final = '[models."scripted*"]\ndisplay_name = "Scripted"\n'
"""Table of the scripted model, so that no thread begins with a warning about an unknown model."""


def write_config(
    home: Path, url: str, config: Mapping[str, Json], provider: Mapping[str, Json] = NOTHING, tables: str = ""
) -> None:
    """Write settings with the scripted model at that address. `tables` follows the table of its provider."""
    settings: dict[str, Json] = {
        "model": "scripted",
        "model_provider": "scripted",
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",
        **config,
    }
    ours: dict[str, Json] = {
        "name": "Scripted",
        "base_url": url,
        "wire_api": "responses",
        "request_max_retries": 0,
        "stream_max_retries": 0,
        **provider,
    }
    lines = [*_table(settings), KNOWN_MODEL, "[model_providers.scripted]", *_table(ours), tables]
    (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _table(values: Mapping[str, Json]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


class WorldOptions(TypedDict, total=False):
    transport: Transport
    config: Mapping[str, Json]
    provider: Mapping[str, Json]
    tables: str
    """Additional text of `config.toml`."""
    files: Mapping[str, str | bytes]
    """Files of the workspace, by path."""
    git: bool
    environment: Mapping[str, str]
    initialize: bool
    """Whether the client initializes. If false, the test does it."""
    capabilities: Json
    """Capabilities that the client sends when it initializes."""
    acp: bool
    """Whether the server speaks the Agent Client Protocol. `initialize` is then left to the test."""
    machine: SystemPorts
    """Machine of the server, with a disk that is full for example. Not for a server that runs as a process."""
    before: Callable[[World], None]
    """Function that changes the folders before the server starts."""


class MakeWorld(Protocol):
    def __call__(
        self, *replies: Reply, **options: Unpack[WorldOptions]
    ) -> AbstractAsyncContextManager[World]: ...


def worlds_in(root: Path) -> MakeWorld:
    """Return a factory of worlds in that folder, one after another over the same home."""

    @asynccontextmanager
    async def world(*replies: Reply, **options: Unpack[WorldOptions]) -> AsyncIterator[World]:
        with anyio.fail_after(WHOLE_SCENARIO):
            async with _lived(root, ScriptedModel(list(replies)), options) as lived:
                yield lived

    return world


def world_with(
    root: Path, model: ScriptedModel, **options: Unpack[WorldOptions]
) -> AbstractAsyncContextManager[World]:
    """Return a world in that folder with this model in place of a script."""
    return _lived(root, model, options)


@asynccontextmanager
async def _lived(root: Path, model: ScriptedModel, options: WorldOptions) -> AsyncIterator[World]:
    make_folders(root)
    seen = look()
    failure: BaseException | None = None
    acp = options.get("acp", False)
    async with model.serving() as url, anyio.create_task_group() as group:
        given, provider = options.get("config", NOTHING), options.get("provider", NOTHING)
        write_config(root / "home", url, given, provider, options.get("tables", ""))
        environment = server_environment(root, **{MARK: str(root)}, **options.get("environment", NOTHING))
        world = World(root, model, Client(MemoryWire(memory_pair()[0])), environment)
        world.write(options.get("files", NOTHING))
        if options.get("git"):
            world.repository()
        world.machine = options.get("machine", world.machine)
        if "before" in options:
            options["before"](world)
        start = _as_process if options.get("transport") == "process" else _in_memory
        async with start(world, group, acp=acp):
            try:
                if options.get("initialize", not acp):
                    can = options.get("capabilities")
                    await world.client.initialize(**({} if can is None else {"capabilities": can}))
                yield world
            except (Exception, pytest.fail.Exception) as error:
                failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    broken = (
        violated_session_invariants(world.client)
        if acp
        else violated_invariants(world.client, model.requests, world.rollouts())
    )
    for each in world.others:
        broken += violated_by_client(each, acp="session/" in str(each.log[:8]))
    broken += await leaks(seen, f"{MARK}={root}")
    assert not broken, "\n".join([*broken, *world.client.tail()])


@asynccontextmanager
async def _in_memory(world: World, group: TaskGroup, *, acp: bool) -> AsyncIterator[None]:
    server_end, client_end = memory_pair()
    settings = ServerSettings(
        home=world.home,
        cwd=world.workspace,
        environment=world.environment,
        limits=limits_of(world.environment),
        acp=acp,
        machine=world.machine,
    )
    world.client.wire = MemoryWire(client_end)
    serving, ended = anyio.Event(), anyio.Event()

    async def run() -> None:
        async with open_server(settings) as world.in_process:
            serving.set()
            await world.in_process.serve(server_end, settings)
        server_end.close()

    async def read() -> None:
        await world.client.read()
        ended.set()

    group.start_soon(run, name="the server")
    group.start_soon(read, name="the client")
    await serving.wait()
    yield
    await world.client.wire.close()
    with anyio.fail_after(LEAVES_WITHIN):
        await ended.wait()


@asynccontextmanager
async def _as_process(world: World, group: TaskGroup, *, acp: bool) -> AsyncIterator[None]:
    from tests.support.program import SCRIPT  # noqa: PLC0415  worlds in memory need no installed copy

    with (world.root / "server.log").open("ab") as log:
        process = await anyio.open_process(
            (SCRIPT, "acp" if acp else "app-server"), stderr=log, env=world.environment, cwd=world.workspace
        )
    world.client.wire = ProcessWire(process)
    ended = anyio.Event()

    async def read() -> None:
        await world.client.read()
        ended.set()

    group.start_soon(read, name="the client")
    try:
        yield
        await world.client.wire.close()
        with anyio.fail_after(LEAVES_WITHIN):
            await ended.wait()
            assert await process.wait() == 0
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
