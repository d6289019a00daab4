"""The engine that is loaded when it is needed."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, cast

import anyio

from app_server.core.errors import LaunchError
from app_server.core.lazy import Lazy
from app_server.core.opening import NewConversation
from app_server.server import LazyEngine


class Assembled:
    """Stands for the engine, its models and its adapters at once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.engine = self.models = self.adapters = self

    async def warm_up(self) -> None:
        self.done.append("warm")

    def load_turns(self) -> None:
        assert threading.get_ident() != threading.main_thread().ident
        self.done.append("turns")

    async def open(self, config: object, origin: object) -> Any:
        self.done.append("open")
        return origin

    async def aclose(self) -> None:
        self.done.append("models closed")

    async def close(self) -> None:
        self.done.append("adapters closed")


class Loader:
    """Keeps book."""

    def __init__(self) -> None:
        self.made: list[Assembled] = []
        self.threads: set[int] = set()

    def __call__(self) -> Any:
        self.threads.add(threading.get_ident())

        def assemble() -> Assembled:
            assert threading.get_ident() == threading.main_thread().ident
            self.made.append(Assembled())
            return self.made[-1]

        return assemble


class Runner:
    """Stands for the runner of commands."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def warm_up(self) -> None:
        self.done.append("launcher")

    @property
    def sandbox(self) -> Self:
        return self

    async def state(self) -> None:
        self.done.append("probe")
        raise LaunchError("no processes left")


@asynccontextmanager
async def lazy_engine(load: Loader, runner: Runner) -> AsyncIterator[LazyEngine]:
    """An engine whose background tasks have ended when the context is left."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as background:
            yield LazyEngine(Lazy(load), cast("Any", runner), background)


async def test_it_is_assembled_once_and_prepares_the_first_turn() -> None:
    load, runner = Loader(), Runner()
    origin = NewConversation()
    async with lazy_engine(load, runner) as engine, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(engine.open, cast("Any", Path()), origin)
        assert await engine.open(cast("Any", Path()), origin) is cast("Any", origin)
    await engine.aclose()
    [assembled] = load.made
    assert load.threads == {threading.get_ident()}
    assert sorted(assembled.done[:-2]) == ["open"] * 4 + ["turns", "warm"]
    assert assembled.done[-2:] == ["models closed", "adapters closed"]
    assert runner.done == ["launcher", "probe"]


async def test_one_that_was_never_needed_is_not_loaded_to_be_closed() -> None:
    load = Loader()
    async with lazy_engine(load, Runner()) as engine:
        await engine.aclose()
    assert not load.threads
