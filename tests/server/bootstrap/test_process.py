"""Parts of the process: late loading, limits, threads, memory and log."""

import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, cast

import anyio
import anyio.lowlevel
import pytest

from app_server.engine.support import process_memory
from app_server.engine.support.engine_errors import LaunchError
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.limits import PREFIX, SMALLEST, Limits, limits_of
from app_server.engine.support.process_memory import FreeMemoryReturn
from app_server.engine.support.worker_threads import NO_THREAD, run_in_thread
from app_server.engine.thread_origin import NewConversation
from app_server.server.engine_loader import LazyEngine
from app_server.server.logs import NonBlockingHandler
from tests.support.callers import some_caller


def test_without_a_word_the_defaults_hold() -> None:
    assert limits_of({"PATH": "/bin"}) == Limits()


def test_each_can_be_set() -> None:
    given = {
        f"{PREFIX}{name.upper()}": str(smallest + n) for n, (name, smallest) in enumerate(SMALLEST.items())
    }
    limits = limits_of(given)
    assert limits == Limits(*(smallest + n for n, smallest in enumerate(SMALLEST.values())))


def test_a_client_that_shares_its_server_may_ask_less_at_once_unless_it_is_set() -> None:
    assert [Limits().requests_of(shared=shared) for shared in (False, True)] == [20_000, 1_000]
    given = limits_of({"APP_SERVER_MAX_REQUESTS": "7"})
    assert [given.requests_of(shared=shared) for shared in (False, True)] == [7, 7]


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e9", "٣", "9" * 40, "1.5"])
def test_what_is_no_limit_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"APP_SERVER_MAX_CONVERSATIONS expects a number of at least 1"):
        limits_of({"APP_SERVER_MAX_CONVERSATIONS": text})


def test_the_documentation_names_each() -> None:
    text = (Path(__file__).parents[3] / "docs" / "limits.md").read_text(encoding="utf-8")
    for name in SMALLEST:
        assert f"`{PREFIX}{name.upper()}`" in text


def test_what_others_say_in_the_log_drives_no_terminal() -> None:
    written: list[bytes] = []

    def write(data: bytes) -> int:
        written.append(data)
        return len(data)

    record = logging.makeLogRecord({"msg": "said: %s", "args": ("grün\x1b[2J\x9b2J\u202e\ud800 one\ntwo",)})
    NonBlockingHandler(write).emit(record)
    assert written == ["said: grün\\x1b[2J\\x9b2J\\u202e\\ud800 one\n".encode(), b"two\n"]


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    monkeypatch.setattr(threading.Thread, "start", refuse)


async def test_short_work_is_done_all_the_same(no_threads: None) -> None:
    assert await run_in_thread(lambda a, b: a + b, 1, 2) == 3


async def test_work_that_may_hang_is_refused(no_threads: None) -> None:
    with pytest.raises(BlockingIOError):
        await run_in_thread(lambda: None, abandon_on_cancel=True)


async def test_errors_of_the_work_are_its_own() -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise RuntimeError(NO_THREAD)

    with pytest.raises(RuntimeError):
        await run_in_thread(work)
    assert calls == [1]


SCRIPT = """
import ctypes
from app_server.engine.support.process_memory import return_free_memory, return_large_blocks

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

return_large_blocks()
libc = ctypes.CDLL(None)
if not hasattr(libc, "malloc_trim"):
    print("0 0")
else:
    libc.malloc.restype = ctypes.c_void_p
    # The last one stays: it is as large as the others, so it lies above them and not in a gap of what came before.
    *blocks, topmost = [ctypes.c_void_p(libc.malloc(100_000)) for _ in range(201)]
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    for block in blocks:
        libc.free(block)
    before = resident()
    return_free_memory()
    print(before, resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is done")
def test_memory_below_a_block_in_use_is_returned() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert before == after == 0 or before - after > 15_000_000


async def test_memory_is_returned_again_when_its_last_owners_have_freed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returns = list[int]()
    monkeypatch.setattr(process_memory, "return_free_memory", lambda: returns.append(1))
    memory = FreeMemoryReturn(settle_seconds=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memory.return_again)
        await anyio.wait_all_tasks_blocked()
        assert len(returns) == 0
        for before in (0, 3):
            memory.return_now()
            memory.return_now()
            assert len(returns) == before + 2
            while len(returns) == before + 2:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            assert len(returns) == before + 3
        tasks.cancel_scope.cancel()


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


def test_a_failed_load_is_tried_anew() -> None:
    tries: list[int] = []

    def load() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ImportError("no such module")
        return "it"

    lazy = Lazy(load)
    with pytest.raises(ImportError, match="no such module"):
        lazy.get()
    assert (lazy.get(), lazy.get(), tries) == ("it", "it", [1, 1])


class Assembled:
    """Fake of the engine, its models and its adapters at once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.engine = self.models = self.networks = self.adapters = self.known = self

    def of(self, environment: object) -> Any:
        return self

    async def warm_up(self) -> None:
        self.done.append("warm")

    def load_turns(self) -> None:
        assert threading.get_ident() != threading.main_thread().ident
        self.done.append("turns")

    async def with_model(self, config: object, caller: object) -> Any:
        return config

    async def open(self, config: object, origin: object, caller: object) -> Any:
        self.done.append("open")
        return origin

    async def aclose(self) -> None:
        self.done.append("models closed")

    async def close(self) -> None:
        self.done.append("adapters closed")


class Loader:
    """Loader that records what it made, and its threads."""

    def __init__(self) -> None:
        self.made: list[Assembled] = []
        self.threads: set[int] = set()

    def __call__(self) -> Any:
        self.threads.add(threading.get_ident())
        self.made.append(Assembled())
        return self.made[-1]


class Runner:
    """Fake of the command runner."""

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
    """Yield an engine whose background tasks have ended after the block."""
    with anyio.fail_after(5):
        async with anyio.create_task_group() as background:
            yield LazyEngine(load, cast("Any", runner), {}, background)


async def test_it_is_assembled_once_and_prepares_the_first_turn() -> None:
    load, runner = Loader(), Runner()
    origin = NewConversation()
    async with lazy_engine(load, runner) as engine, anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(engine.open, cast("Any", Path()), origin, some_caller())
        assert await engine.open(cast("Any", Path()), origin, some_caller()) is cast("Any", origin)
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
