"""A world for the client library: a home, a workspace, a scripted model, and a connector to a server in it.

The same scenario runs with the server in a subprocess and in this process. The messages on the wire are recorded, and
checked against the invariants of every conversation when the world ends. Scenarios that leave the server unchanged may
share one, because starting a server takes longer than most of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypedDict, Unpack

import anyio

from app_server.client import (
    ApprovalHandler,
    AppServer,
    ConnectOptions,
    Connector,
    Hooks,
    ServerLink,
    SubprocessConnector,
)
from app_server.in_process import InProcessConnector
from app_server.server.transport.memory import memory_pair
from app_server_protocol.encoding import Json
from app_server_protocol.framing import Oversized
from tests.support.client import Client, Logged, MemoryWire
from tests.support.invariants import violated_invariants
from tests.support.leftovers import Before, leaks, look
from tests.support.scripted_model import ModelRequest, Reply, ScriptedModel
from tests.support.world import (
    MARK,
    WHOLE_SCENARIO,
    World,
    make_folders,
    server_environment,
    write_config,
    write_files,
)

Way = Literal["subprocess", "in_process"]
WAYS: tuple[Way, ...] = ("subprocess", "in_process")


@dataclass(slots=True)
class LibraryWorld(World):
    """World of the client library. `client` records every message of the connection in order; it sends none itself."""

    server: AppServer = field(kw_only=True)


class WorldOptions(TypedDict, total=False):
    config: Mapping[str, Json]
    tables: str
    """Additional text of `config.toml`."""
    files: Mapping[str, str | bytes]
    """Files of the workspace, by path."""
    on_approval: ApprovalHandler
    hooks: Hooks
    own: bool
    """Whether the scenario needs a server and a home that no other scenario has used."""


class MakeLibraryWorld(Protocol):
    def __call__(
        self, *replies: Reply, **options: Unpack[WorldOptions]
    ) -> AbstractAsyncContextManager[LibraryWorld]: ...


def library_worlds(root: Path, way: Way, shared: SharedServer | None = None) -> MakeLibraryWorld:
    """Return a factory of worlds in that folder, one after another over the same home, or around the shared server if
    there is one.
    """

    @asynccontextmanager
    async def own_world(*replies: Reply, **options: Unpack[WorldOptions]) -> AsyncIterator[LibraryWorld]:
        make_folders(root)
        seen = look()
        model = ScriptedModel(list(replies))
        config, tables = options.get("config", {}), options.get("tables", "")
        with anyio.fail_after(WHOLE_SCENARIO):
            async with serving_model(model, root, config, tables) as environment:
                connector = RecordingConnector(connector_to(way, root, environment))
                write_files(root / "workspace", options.get("files", {}))
                handlers: ConnectOptions = {
                    "on_approval": options.get("on_approval"),
                    "hooks": options.get("hooks"),
                }
                async with AppServer.connect(connector, **handlers) as server:
                    yield LibraryWorld(root, model, connector.record, environment, server=server)
        await check(root, connector.record, model.requests, seen)

    def world(*replies: Reply, **options: Unpack[WorldOptions]) -> AbstractAsyncContextManager[LibraryWorld]:
        if shared is None or shared.spoiled or options.keys() - {"config"}:
            return own_world(*replies, **options)
        return shared.world(*replies, config=options.get("config", {}))

    return world


@dataclass(slots=True)
class SharedServer:
    """One server for many scenarios. Each scenario has a model, settings and an empty workspace of its own."""

    root: Path
    server: AppServer
    record: Client
    requests: list[ModelRequest] = field(default_factory=list)
    """Requests to the models of all scenarios."""
    spoiled: bool = False
    """Whether a scenario failed, after which the state of the server is unknown."""

    @asynccontextmanager
    async def world(self, *replies: Reply, config: Mapping[str, Json]) -> AsyncIterator[LibraryWorld]:
        workspace = self.root / "workspace"
        for path in workspace.iterdir():
            path.unlink()
        model = ScriptedModel(list(replies))
        try:
            with anyio.fail_after(WHOLE_SCENARIO):
                async with serving_model(model, self.root, config) as environment:
                    yield LibraryWorld(self.root, model, self.record, environment, server=self.server)
        except BaseException:
            self.spoiled = True
            raise
        finally:
            self.requests += model.requests


@asynccontextmanager
async def shared_server(root: Path) -> AsyncIterator[SharedServer]:
    make_folders(root)
    async with serving_model(ScriptedModel([]), root, {}) as environment:
        connector = RecordingConnector(connector_to("subprocess", root, environment))
        async with AppServer.connect(connector) as server:
            shared = SharedServer(root, server, connector.record)
            yield shared
    if not shared.spoiled:
        await check(root, connector.record, shared.requests, look())


async def check(root: Path, record: Client, requests: Sequence[ModelRequest], seen: Before) -> None:
    """Check the invariants at the end of every conversation, and that nothing new is left since `seen`. Raises
    AssertionError.
    """
    rollouts = sorted((root / "home").glob("sessions/**/rollout-*.jsonl"))
    broken = violated_invariants(record, list(requests), rollouts)
    broken += await leaks(seen, f"{MARK}={root}")
    assert not broken, "\n".join([*broken, *record.tail()])


@asynccontextmanager
async def serving_model(
    model: ScriptedModel, root: Path, config: Mapping[str, Json], tables: str = ""
) -> AsyncIterator[Mapping[str, str]]:
    """Serve the model; yield the environment of a server that uses it. Exceptions of the block are raised unchanged."""
    failure: BaseException | None = None
    async with model.serving() as url:
        write_config(root / "home", url, config, tables=tables)
        try:
            yield server_environment(root, **{MARK: str(root)})
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            failure = error
    if failure is not None:
        raise failure


class RecordingConnector:
    """Connector that records the messages on the links that another connector opens."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.record = Client(MemoryWire(memory_pair()[0]))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ServerLink]:
        async with self._connector.open() as link:
            yield RecordedLink(link, self.record)


class RecordedLink:
    def __init__(self, link: ServerLink, record: Client) -> None:
        self._link, self._record = link, record

    async def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        async for batch in self._link.lines():
            for line in batch:
                assert isinstance(line, bytes), "the server wrote a line over the limit"
                self._record.log.append(Logged(False, json.loads(line)))
            yield batch

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            self._record.log.append(Logged(True, json.loads(line)))
        await self._link.write(data)

    async def close(self) -> None:
        await self._link.close()

    async def cause_of_end(self) -> str:
        return await self._link.cause_of_end()


def connector_to(way: Way, root: Path, environment: Mapping[str, str]) -> Connector:
    cwd = root / "workspace"
    if way == "subprocess":
        from tests.support.program import SCRIPT  # noqa: PLC0415  a server in this process needs no installed copy

        return SubprocessConnector(command=(SCRIPT,), environment=environment, cwd=cwd)
    return InProcessConnector(home=root / "home", cwd=cwd, environment=environment)
