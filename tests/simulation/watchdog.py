"""Watchdog for worlds that spin: a step of a task that never yields, and tasks that yield for ever while the clock
stands still.

Either would hang the run, and nobody would know its seed.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STEP_SECONDS = 3.0
"""Limit of the processor time of one step, in seconds. A step over the limit is stopped after at most twice that time.
"""
MOST_STEPS = 50_000
"""Maximum number of steps at one moment. Worlds that end take up to some 1,500."""
FRAMES = 8


class Spin(KeyboardInterrupt):
    """The world makes no progress. It is a KeyboardInterrupt because an event loop does not catch that exception of a
    task.
    """


@contextmanager
def step_limit(steps: Callable[[], int]) -> Iterator[None]:
    """Raise Spin in the block if the number of steps stays the same for too long."""
    before = -1

    def tick(_: int, frame: FrameType | None) -> None:
        nonlocal before
        last, before = before, steps()
        if before == last:
            raise Spin(f"no task has yielded for seconds of processor time: {' < '.join(_places(frame))}")

    handler = signal.signal(signal.SIGPROF, tick)
    signal.setitimer(signal.ITIMER_PROF, STEP_SECONDS, STEP_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


def _places(frame: FrameType | None) -> Iterator[str]:
    """Yield the code positions of the step, innermost first."""
    for _ in range(FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f"{code.co_qualname} in {'/'.join(code.co_filename.split('/')[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
