"""What takes long to import, loaded when it is needed or ahead of that in a thread. Imports nothing that takes time.

The import statement stands in the function that is given, so type checkers see what is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class Lazy(Generic[T]):
    """A value that is loaded once. Safe to use from several threads."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: list[T] = []

    def get(self) -> T:
        """Loads it on this thread, or waits for the one that does. Raises what the loading raises."""
        with self._lock:
            if not self._loaded:
                self._loaded.append(self._load())
            return self._loaded[0]

    def start(self, ended: Callable[[], None]) -> None:
        """Load it in a thread, which calls `ended` at last; where the loading failed, `get` says why. Where the system
        gives no thread, it is loaded here and now: who waits for it waits a little longer.
        """

        def work() -> None:
            try:
                self.get()
            except Exception:
                pass  # who needs the value gets it raised
            finally:
                ended()

        try:
            threading.Thread(target=work, name="load", daemon=True).start()
        except RuntimeError:
            work()
