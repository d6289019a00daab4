"""What is loaded late is loaded once, and says what went wrong to whoever needs it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app_server.core.lazy import Lazy


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
