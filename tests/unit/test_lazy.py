"""What is loaded late is loaded once, and says what went wrong to whoever needs it; the engine, too."""

import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, cast

import anyio
import pytest

from app_server.core.errors import LaunchError
from app_server.core.lazy import Lazy
from app_server.core.opening import NewConversation
from app_server.server import LazyEngine


def test_it_is_loaded_once_for_all_threads() -> None:
    loaded: list[int] = []
    together = threading.Barrier(8)

    def load() -> int:
        loaded.append(1)
        return len(loaded)

    lazy = Lazy(load)

    def get(_: int) -> int:
        together.wait(10)
        return lazy.get()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(get, range(8))) == [1] * 8
    assert loaded == [1]


def test_who_needs_it_waits_for_the_thread_that_loads_it() -> None:
    began, go, ended = threading.Event(), threading.Event(), threading.Event()
    by: list[str] = []

    def load() -> str:
        by.append(threading.current_thread().name)
        began.set()
        assert go.wait(10)
        return "it"

    lazy = Lazy(load)
    lazy.start(ended.set)
    assert began.wait(10)
    assert not ended.is_set()
    go.set()
    assert lazy.get() == "it"
    assert ended.wait(10)
    assert by == ["load"]


def test_a_failed_load_ends_and_is_reported() -> None:
    tries: list[int] = []
    ended = threading.Event()

    def load() -> str:
        tries.append(1)
        raise ImportError("no such module")

    lazy = Lazy(load)
    lazy.start(ended.set)
    assert ended.wait(10)
    with pytest.raises(ImportError, match="no such module"):
        lazy.get()
    assert tries == [1, 1]


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

    async def open(self, config: object, origin: object, new_operation_id: object) -> Any:
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
            group.start_soon(engine.open, cast("Any", Path()), origin, str)
        assert await engine.open(cast("Any", Path()), origin, str) is cast("Any", origin)
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
