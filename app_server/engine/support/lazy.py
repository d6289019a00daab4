"""Values that are made on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class Lazy(Generic[T]):
    """A value that is made once. Thread-safe."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: list[T] = []
        self.started = False
        """Whether making the value has begun or is done."""

    def get(self) -> T:
        """Make the value on this thread, or wait for the thread that does. Raises the exception of `load`."""
        self.started = True
        with self._lock:
            if not self._loaded:
                self._loaded.append(self._load())
            return self._loaded[0]
