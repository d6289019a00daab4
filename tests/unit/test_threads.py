"""Blocking work where the system gives no more threads."""

import threading

import pytest

from app_server.core.threads import NO_THREAD, run_in_thread


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
