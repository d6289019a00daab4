"""Loads slow imports on first use, or before that in a thread. Fast to import itself.

The import statement is in the function that the caller passes, so type checkers see it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class Lazy(Generic[T]):
    """A value that is loaded once. Thread-safe."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: list[T] = []
        self.started = False
        """Whether loading the value has begun or is done."""

    def get(self) -> T:
        """Load the value on this thread, or wait for the thread that does. Raises the exception of `load`."""
        self.started = True
        with self._lock:
            if not self._loaded:
                self._loaded.append(self._load())
            return self._loaded[0]

    def start(self, finished: Callable[[], None]) -> None:
        """Load the value in a thread, which finally calls `finished`. If loading fails, `get` raises the exception. If
        the system has no thread left, it is loaded synchronously.
        """
        self.started = True

        def load_and_notify() -> None:
            try:
                self.get()
            except Exception:
                pass  # `get` tries again, and raises it to its caller
            finally:
                finished()

        try:
            threading.Thread(target=load_and_notify, name="load", daemon=True).start()
        except RuntimeError:
            load_and_notify()
