"""The engine that is loaded when it is needed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from app_server.core.opening import NewConversation
from app_server.lazy_engine import LazyEngine

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Assembled:
    """Stands for the engine, its models and its extras at once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.engine = self.models = self.extras = self

    async def open(self, config: object, origin: object) -> Any:
        self.done.append("open")
        return origin

    async def aclose(self) -> None:
        self.done.append("models closed")

    async def close(self) -> None:
        self.done.append("extras closed")


class Loader:
    """Loads when it is let go on, as an import takes its time."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.made: list[Assembled] = []
        self.threads: set[int] = set()

    def __call__(self) -> Any:
        self.threads.add(threading.get_ident())
        assert self.go_on.wait(5)

        def assemble() -> Assembled:
            assert threading.get_ident() == threading.main_thread().ident
            self.made.append(Assembled())
            return self.made[-1]

        return assemble


async def test_it_is_loaded_in_a_thread_and_put_together_once() -> None:
    load = Loader()
    engine = LazyEngine(load)
    origin = NewConversation()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(engine.open, cast(Any, Path()), origin)
            await anyio.wait_all_tasks_blocked()
            load.go_on.set()
        assert await engine.open(cast(Any, Path()), origin) is cast(Any, origin)
        await engine.aclose()
    [assembled] = load.made
    assert assembled.done == ["open"] * 4 + ["models closed", "extras closed"]
    assert threading.main_thread().ident not in load.threads


async def test_one_that_was_never_needed_is_not_loaded_to_be_closed() -> None:
    load = Loader()
    await LazyEngine(load).aclose()
    assert not load.threads
