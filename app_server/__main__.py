"""`python -m app_server` and the console script."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Let Ctrl-C end the process without a traceback until a command handles it: until then nothing has to be ended."""
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # a background job of a script ignores it
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    from app_server.cli import main as run  # noqa: PLC0415  takes a while

    sys.exit(run())


if __name__ == "__main__":
    main()
