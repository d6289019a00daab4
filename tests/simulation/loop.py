"""An event loop in virtual time: when no task is ready, the clock moves to the next timer.

The steps of tasks run in an order that is drawn; callbacks keep their order, as asyncio promises. Work for threads runs
in the loop after a drawn delay. When no task is ready and no timer is set, the world is in a deadlock: the error names
every task and where it waits.
"""

import asyncio
import bisect
import contextvars
import itertools
import selectors
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.simulation import watchdog
from tests.simulation.draws import Draws


class Deadlock(Exception):
    """No task is ready, no timer is set, and the world has not ended."""


class _NoWaiting(selectors.BaseSelector):
    """A selector without files. Instead of waiting it moves the clock of the loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, _number(fileobj), events, data)
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(_number(fileobj))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


def _number(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


class SimTask(asyncio.Task[Any]):
    """A task with a number, so that sets of tasks have the same order in each run."""

    def __init__(self, *args: Any, number: int, **named: Any) -> None:
        self.number = number
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time."""

    def __init__(self, draws: Draws) -> None:
        self._clock = _NoWaiting()
        super().__init__(self._clock)
        self._draws = draws
        self._steps: list[
            tuple[int, int, contextvars.Context | None, Callable[..., Any], tuple[Any, ...]]
        ] = []
        self._numbers = itertools.count()
        self._order = itertools.count()
        self._new: set[int] = set()
        """Tasks that have not begun. asyncio promises that they begin in the order in which they were created."""
        self.set_task_factory(self._new_task)
        self._a_step = asyncio.Handle(self._step, (), self, contextvars.Context())
        """Handle that is in the ready queue once for each step that is due. No such step is cancelled, so one handle is
        enough.
        """
        self.rounds = 0
        """Number of steps of tasks that have begun."""
        self._moment = 0.0
        self._steps_of_moment = 0
        self.before_round: dict[int, Callable[[], None]] = {}
        """Callbacks before a step, by its number."""

    def _new_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **named: Any) -> SimTask:
        number = next(self._numbers)
        self._new.add(number)
        return SimTask(coro, loop=loop, number=number, **named)

    def time(self) -> float:
        return self._clock.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        task = getattr(callback, "__self__", None)
        if not isinstance(task, SimTask):
            return super().call_soon(callback, *args, context=context)
        bisect.insort(self._steps, (task.number, next(self._order), context, callback, args))
        self._ready.append(self._a_step)  # type: ignore[attr-defined]
        return self._a_step

    def _step(self) -> None:
        """Run one of the steps that are due."""
        self.rounds += 1
        if self.rounds in self.before_round:
            self.before_round.pop(self.rounds)()
        steps = self._steps
        at = self._draws.below("step", len(steps)) if len(steps) > 1 else 0
        if steps[at][0] in self._new:
            at = next(each for each, step in enumerate(steps) if step[0] in self._new)
            self._new.discard(steps[at][0])
        _, _, context, callback, args = steps.pop(at)
        if context is None:
            callback(*args)
        else:
            context.run(callback, *args)
        self._count_in_moment()

    def _count_in_moment(self) -> None:
        if self._moment != self._clock.now:
            self._moment, self._steps_of_moment = self._clock.now, 0
        self._steps_of_moment += 1
        if self._steps_of_moment > watchdog.MOST_STEPS:
            self._steps_of_moment = 0  # allow as many steps again for the tasks to end
            raise watchdog.Spin(f"the clock stands still while tasks take steps:\n{describe_tasks(self)}")

    def jump(self, seconds: float) -> None:
        """Move the clock at once, as after a suspend."""
        self._clock.now += seconds


def describe_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return where each task of the loop waits."""
    lines = []
    for task in asyncio.all_tasks(loop):
        places: list[str] = []
        awaited: Any = task.get_coro()
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None)
            if frame is not None:
                places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            awaited = getattr(awaited, "cr_await", None)
        lines.append(f"{task.get_name()} at {' > '.join(places[-4:])}")
    return "\n".join(sorted(lines))


@contextmanager
def threads_in_the_loop(
    draws: Draws, delays: tuple[float, ...], begins: Callable[[], None]
) -> Iterator[None]:
    """Run work for threads in the event loop while the block runs, after one of the delays in seconds. `begins` is
    called where the work has to wait.
    """

    async def run_sync(
        work: Callable[..., Any], *args: Any, abandon_on_cancel: bool = False, **_: Any
    ) -> Any:
        await anyio.lowlevel.checkpoint()
        delay = draws.seconds("thread", *delays)
        try:
            if delay:
                begins()
                # A cancelled task waits for the thread, as with anyio.
                with anyio.CancelScope(shield=not abandon_on_cancel):
                    await anyio.sleep(delay)
        except anyio.get_cancelled_exc_class():
            with suppress(Exception):
                work(*args)  # a thread whose task has gone still runs on
            raise
        return work(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio.to_thread, "run_sync", run_sync)
        yield
