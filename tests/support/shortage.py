"""Temporary shortages of a resource."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def open_files(more: int) -> Iterator[None]:
    """Limit the open files of this process to `more` above their current number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    filling = [os.open(os.devnull, os.O_RDONLY)]
    while filling[-1] < highest:
        filling.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (filling[-1] + 1 + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in filling:
            os.close(number)
