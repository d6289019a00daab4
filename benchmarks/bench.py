"""The shape of a benchmark: a name, and a run on one server, with its measured values."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field

from benchmarks.model import PreparedModel
from benchmarks.place import Place
from benchmarks.server import Server, running


@dataclass(frozen=True, slots=True)
class Run:
    """One server in one place, and its model."""

    command: Sequence[str]
    place: Place
    model: PreparedModel
    model_url: str

    def server(self, sandbox: str = "danger-full-access") -> AbstractAsyncContextManager[Server]:
        self.place.configure(self.model_url, sandbox)
        return running(self.command, self.place)


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    run: Callable[[Run], Awaitable[Mapping[str, float]]]


@dataclass(slots=True)
class Watch:
    """Durations of timed blocks, in seconds."""

    seconds: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - begin)

    @property
    def last(self) -> float:
        return self.seconds[-1]
