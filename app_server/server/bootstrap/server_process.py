"""The server as a process: it reserves stdout, loads and runs the server, and exits cleanly."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from app_server.engine.support import process_memory
from app_server.server.bootstrap import full_server
from app_server.server.bootstrap.claim import claim_stdout
from app_server.server.bootstrap.launch import ProcessOptions, parse_launch

log = logging.getLogger(__name__)


def serve_stdio(options: Mapping[str, Any]) -> int:
    """Serve stdin and stdout until the client closes the connection, then exit the process."""
    try:
        launch = parse_launch(options, os.environ)
    except ValueError as error:
        print(f"app-server: {error}", file=sys.stderr)  # noqa: T201  there is no client yet
        return 2
    write_fd = claim_stdout()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Until the server handles these signals, there is nothing to store.
        signal.signal(number, lambda *_: os._exit(0))
    run = _load_server()
    run(write_fd, launch)
    # A normal exit would wait for threads that are blocked on a disk or a name server.
    sys.stderr.flush()
    os._exit(0)


def _load_server() -> Callable[[int, ProcessOptions], None]:
    """Load the server, but for the API that its client uses, which the first request tells."""
    begin_loading()
    try:
        guard_memory()
        return full_server.run  # nearly all imports hang on it
    finally:
        end_loading()


def begin_loading() -> None:
    """Disable garbage collection until `end_loading`: imported modules are not garbage."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # the server has none: saves the search
    gc.disable()


def end_loading() -> None:
    """Enable garbage collection again, and exclude imported modules from it for ever."""
    gc.freeze()
    gc.enable()


def guard_memory() -> None:
    """Deny other processes access to the memory of this one, and return freed memory to the system."""
    process_memory.refuse_inspection()
    process_memory.return_large_blocks()
