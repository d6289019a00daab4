"""An end for worlds that spin: a step of a task that never yields, and tasks that yield for ever while the clock stands
still. Either would hang the run, and nobody would know which seed it was.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STEP_SECONDS = 3.0
"""Of processor time. A step is stopped that takes longer than that, and at most twice as long."""
MOST_STEPS = 50_000
"""Steps of tasks at one moment; worlds that end take up to some 1,500."""
FRAMES = 8


class Spin(KeyboardInterrupt):
    """The world does not get on. An event loop holds such an exception of a task not back."""


@contextmanager
def step_limit(steps: Callable[[], int]) -> Iterator[None]:
    """Raise Spin inside where the number of steps stays the same for too long."""
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
    """Yield where the step is, the innermost place first."""
    for _ in range(FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f"{code.co_qualname} in {'/'.join(code.co_filename.split('/')[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
