"""The engine that is loaded when it is needed."""

import threading
from pathlib import Path
from typing import Any, cast

import anyio

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


async def test_it_is_put_together_once() -> None:
    load = Loader()
    engine = LazyEngine(Lazy(load))
    origin = NewConversation()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(engine.warm_up)
                group.start_soon(engine.open, cast("Any", Path()), origin)
        assert await engine.open(cast("Any", Path()), origin) is cast("Any", origin)
        await engine.aclose()
    [assembled] = load.made
    assert sorted(assembled.done[:-2]) == ["open"] * 4 + ["turns"] * 3 + ["warm"] * 3
    assert assembled.done[-2:] == ["models closed", "adapters closed"]


async def test_nobody_waits_for_the_loading_but_who_opens_a_conversation() -> None:
    here = threading.get_ident()
    ahead, asked = Loader(), Loader()
    await LazyEngine(Lazy(ahead)).warm_up()
    assert here not in ahead.threads
    assert ahead.made[0].done == ["turns", "warm"]
    await LazyEngine(Lazy(asked)).open(cast("Any", Path()), NewConversation())
    assert asked.threads == {here}


async def test_one_that_was_never_needed_is_not_loaded_to_be_closed() -> None:
    load = Loader()
    await LazyEngine(Lazy(load)).aclose()
    assert not load.threads
