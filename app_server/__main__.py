"""`python -m app_server` and the console script."""

from __future__ import annotations

import gc
import os
import signal
import sys

ALLOCATIONS = 10_000
"""New objects between two collections of garbage. The default is 700: until the end of a first turn, 60 collections."""


def main() -> None:
    """Run the command line, and leave without waiting for threads that a disk or a name server blocks.

    Until a command handles Ctrl-C, it ends the process without a traceback: nothing has to be ended by then.
    """
    gc.set_threshold(ALLOCATIONS)
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # a background job of a script ignores it
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    _import_nothing_from_here()
    from app_server.cli import main as run  # noqa: PLC0415  takes a while

    status = run()
    sys.stderr.flush()
    os._exit(status)


def _import_nothing_from_here() -> None:
    """Remove the folder from the path of modules in which Python was started: it may be a workspace, where commands of
    a turn write.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and os.path.abspath(sys.path[0]) != own:
        del sys.path[0]


if __name__ == "__main__":
    main()
