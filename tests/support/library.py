"""A world for the client library: a home, a workspace, a scripted model, and a connector to a server in it.

The same scenario runs with the server in a subprocess and in this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypedDict, Unpack

import anyio

from app_server.client import ApprovalHandler, AppServer, Connector, SubprocessConnector
from app_server.in_process import InProcessConnector
from protocol.base import Json
from tests.support.leftovers import leaks, look
from tests.support.scripted_model import Reply, ScriptedModel
from tests.support.world import MARK, PATH, WHOLE_SCENARIO, Plan

Way = Literal["subprocess", "in_process"]
WAYS: tuple[Way, ...] = ("subprocess", "in_process")


@dataclass(slots=True)
class LibraryWorld:
    root: Path
    model: ScriptedModel
    server: AppServer
    connector: Connector

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"


class WorldOptions(TypedDict, total=False):
    config: Mapping[str, Json]
    on_approval: ApprovalHandler
    before: Callable[[Path], None]


class MakeLibraryWorld(Protocol):
    def __call__(
        self, *replies: Reply, **options: Unpack[WorldOptions]
    ) -> AbstractAsyncContextManager[LibraryWorld]: ...


def library_worlds(root: Path, way: Way) -> MakeLibraryWorld:
    """Makes worlds in that folder, one after another over the same home."""

    @asynccontextmanager
    async def world(*replies: Reply, **options: Unpack[WorldOptions]) -> AsyncIterator[LibraryWorld]:
        for folder in ("home", "workspace", "user"):
            (root / folder).mkdir(exist_ok=True)
        if (before := options.get("before")) is not None:
            before(root)
        seen = look()
        model = ScriptedModel(list(replies))
        with anyio.fail_after(WHOLE_SCENARIO):
            async with serving_model(model, root, options.get("config", {})) as environment:
                connector = connector_to(way, root, environment)
                async with AppServer.connect(connector, on_approval=options.get("on_approval")) as server:
                    yield LibraryWorld(root, model, server, connector)
        left = await leaks(seen, f"{MARK}={root}")
        assert not left, "\n".join(left)

    return world


@asynccontextmanager
async def serving_model(
    model: ScriptedModel, root: Path, config: Mapping[str, Json]
) -> AsyncIterator[Mapping[str, str]]:
    """The model, and the environment of a server that asks it. Exceptions of the block come out as they are."""
    failure: Exception | None = None
    async with model.serving() as url:
        Plan(root, (), "memory", config, {}, "", {}, False, False).write_config(url)
        try:
            yield {
                "PATH": PATH,
                "HOME": str(root / "user"),
                "LANG": "C.UTF-8",
                "NO_PROXY": "127.0.0.1",
                "CODEX_HOME": str(root / "home"),
                MARK: str(root),
            }
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


def connector_to(way: Way, root: Path, environment: Mapping[str, str]) -> Connector:
    cwd = root / "workspace"
    if way == "subprocess":
        return SubprocessConnector(environment=environment, cwd=cwd)
    return InProcessConnector(home=root / "home", cwd=cwd, environment=environment)
