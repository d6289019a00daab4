"""Memory that was freed goes back to the system, also below a block that is still in use."""

import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from app_server.core import process_memory
from app_server.core.process_memory import FreeMemoryReturn

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
