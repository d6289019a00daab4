"""The server as a process: stdout claimed for the wire, the first answers, the full server behind them, a clean end.

Imports nothing that takes time; what does is loaded behind the early handshake.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from app_server.core.lazy import Lazy
from app_server.startup.early_handshake import EarlyAnswer, Handover, early_handshake
from app_server.startup.launch import Launch, launched
from app_server.transport.claim import claim_stdout
from protocol.jsonrpc import Request

log = logging.getLogger(__name__)

PR_SET_DUMPABLE = 4


def serve_stdio(args: argparse.Namespace) -> int:
    """Serve this process's stdin and stdout until the client leaves; then the process ends here."""
    try:
        launch = launched(args, os.environ)
    except ValueError as error:
        print(f"app-server: {error}", file=sys.stderr)  # noqa: T201  nobody is served yet
        return 2
    write_fd = claim_stdout()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Until the full server listens to them there is nothing to be stored.
        signal.signal(number, lambda *_: os._exit(0))
    server = Lazy(_full_server)
    plain = not launch.settings and launch.profile is None
    early_answer = Lazy(lambda: _early_answer(launch.home)) if plain else None
    handover = early_handshake(0, write_fd, launch.environment, launch.home, server, early_answer)
    if handover is not None:
        server.get()(write_fd, launch, handover)
    # Threads that still wait for a disk or a name server must not hold the process.
    sys.stderr.flush()
    os._exit(0)


def _full_server() -> Callable[[int, Launch, Handover], None]:
    refuse_inspection()
    # Plugins are for programs that want to watch their own models; looking for them takes longer than a request.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # What is loaded stays: looking for garbage in it, now or at every full collection later, finds nothing.
    gc.disable()
    try:
        from app_server.startup.full_server import run  # noqa: PLC0415  nearly all imports hang on it
    finally:
        gc.freeze()
        gc.enable()
    return run


def _early_answer(home: Path) -> EarlyAnswer:
    from app_server.startup.early_list import early_list  # noqa: PLC0415  only where something is asked early

    def answer(request: Request) -> bytes | None:
        try:
            return early_list(request, home)
        except Exception:  # what goes wrong here is the engine's to meet, and to tell the client of
            log.exception("a list could not be answered early")
            return None

    return answer


def refuse_inspection() -> None:
    """No other process of the user may read this one's memory, environment and descriptors: keys are in there."""
    if sys.platform == "linux":
        ctypes = importlib.import_module("ctypes")  # takes as long as the rest of this module
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
