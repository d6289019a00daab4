"""What belongs to the process: its limits, threads, memory and log."""

import logging
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from app_server.core import process_memory
from app_server.core.process_memory import FreeMemoryReturn
from app_server.core.threads import NO_THREAD, run_in_thread
from app_server.identity import PREFIX, SMALLEST, Limits, limits_of
from app_server.logs import NonBlockingHandler


def test_without_a_word_the_defaults_hold() -> None:
    assert limits_of({"PATH": "/bin"}) == Limits()


def test_each_can_be_set() -> None:
    given = {
        f"{PREFIX}{each.name.upper()}": str(SMALLEST[each.name] + n) for n, each in enumerate(fields(Limits))
    }
    limits = limits_of(given)
    assert limits == Limits(*(SMALLEST[each.name] + n for n, each in enumerate(fields(Limits))))


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e9", "٣", "9" * 40, "1.5"])
def test_what_is_no_limit_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"APP_SERVER_MAX_CONVERSATIONS expects a number of at least 1"):
        limits_of({"APP_SERVER_MAX_CONVERSATIONS": text})


def test_the_documentation_names_each() -> None:
    text = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    for each in fields(Limits):
        assert f"`{PREFIX}{each.name.upper()}`" in text


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
from app_server.core.process_memory import return_free_memory, return_large_blocks

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
