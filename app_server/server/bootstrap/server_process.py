"""The server as a process: it reserves stdout, runs the early handshake and the full server, and exits cleanly.

Fast to import; slow modules are loaded during the early handshake.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from app_server.engine.support.lazy import Lazy
from app_server.engine.support.lazy_imports import load
from app_server.server.bootstrap.claim import claim_stdout
from app_server.server.bootstrap.handshake import (
    EarlyHandshake,
    InitializeResponder,
    StdinBuffer,
    early_handshake,
    initialize_responder,
    spoken_method,
)
from app_server.server.bootstrap.launch import ProcessOptions, parse_launch

log = logging.getLogger(__name__)

PR_SET_DUMPABLE = 4


def serve_stdio(options: Mapping[str, Any]) -> int:
    """Serve stdin and stdout until the client closes the connection, then exit the process."""
    try:
        launch = parse_launch(options, os.environ)
    except ValueError as error:
        print(f"app-server: {error}", file=sys.stderr)  # noqa: T201  there is no client yet
        return 2
    write_fd = claim_stdout()
    begin_loading()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Until the full server handles these signals, there is nothing to store.
        signal.signal(number, lambda *_: os._exit(0))
    inbox = StdinBuffer(0)
    server = Lazy(lambda: _full_server(inbox, acp=launch.acp))
    respond = _acp_responder(launch) if launch.acp else initialize_responder(launch.environment, launch.home)
    handover = early_handshake(inbox, write_fd, respond, server)
    if handover is not None:
        server.get()(write_fd, launch, handover)
    # A normal exit would wait for threads that are blocked on a disk or a name server.
    sys.stderr.flush()
    os._exit(0)


def _full_server(inbox: StdinBuffer, *, acp: bool) -> Callable[[int, ProcessOptions, EarlyHandshake], None]:
    """Load the server, and the API that the client uses according to its input so far."""
    guard_memory()
    try:
        from app_server.server.bootstrap.full_server import run  # noqa: PLC0415  nearly all imports hang on it

        method = spoken_method(inbox.unread)
        if acp:
            load(importlib.import_module("app_server.server.apis.acp.acp_routes"))
        elif method is not None and "/" in method:
            importlib.import_module("app_server.server.apis.v2.v2_routes").HANDLERS.load_for(method)
        elif method is not None:
            importlib.import_module("app_server.server.apis.v1.v1_routes").HANDLERS.load_for(method)
    finally:
        end_loading()
    return run


def _acp_responder(launch: ProcessOptions) -> InitializeResponder:
    from app_server.server.bootstrap.acp_handshake import acp_responder  # noqa: PLC0415  only for clients of that protocol

    return acp_responder(launch)


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
    refuse_inspection()
    importlib.import_module("app_server.engine.support.process_memory").return_large_blocks()


def refuse_inspection() -> None:
    """Deny other processes of the user access to this process's memory, environment and descriptors: they contain
    keys.
    """
    if sys.platform == "linux":
        ctypes = importlib.import_module("ctypes")  # takes as long as the rest of this module
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
