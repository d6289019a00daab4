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
import types
from collections.abc import Callable, Mapping
from typing import Any

from app_server.core.lazy import Lazy
from app_server.startup.early_answers import SpokenApi
from app_server.startup.early_handshake import (
    EarlyResponders,
    Handover,
    InitializeResponder,
    early_handshake,
    initialize_responder,
)
from app_server.startup.launch import Launch, parse_launch
from app_server.transport.claim import claim_stdout

log = logging.getLogger(__name__)

PR_SET_DUMPABLE = 4


def serve_stdio(options: Mapping[str, Any]) -> int:
    """Serve stdin and stdout until the client closes the connection, then exit the process."""
    launch = parse_launch(options, os.environ)
    write_fd = claim_stdout()
    disable_pydantic_plugins()
    # Imported objects are never garbage: exclude them from every collection, until the server is loaded.
    gc.disable()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Until the full server handles them, there is nothing to store.
        signal.signal(number, lambda *_: os._exit(0))
    spoken = SpokenApi()
    server = Lazy(lambda: _full_server(spoken, acp=launch.acp))
    respond = _acp_responder(launch) if launch.acp else initialize_responder(launch.environment, launch.home)
    handover = early_handshake(
        0, write_fd, respond, server, Lazy(lambda: _early_responders(launch, spoken, server))
    )
    if handover is not None:
        server.get()(write_fd, launch, handover)
    # A normal exit would wait for threads that are blocked on a disk or a name server.
    sys.stderr.flush()
    os._exit(0)


def _full_server(spoken: SpokenApi, *, acp: bool) -> Callable[[int, Launch, Handover], None]:
    """With the API that the client speaks, as far as that is known."""
    refuse_inspection()
    importlib.import_module("app_server.core.process_memory").return_large_blocks()
    try:
        from app_server.startup.full_server import run  # noqa: PLC0415  nearly all imports hang on it

        if acp:
            importlib.import_module("app_server.apis.acp.routes")
        else:
            importlib.import_module("app_server.apis.v1.routes")
            if spoken.threads:
                importlib.import_module("app_server.apis.v2.routes")
    finally:
        gc.freeze()
        gc.enable()
    return run


def _acp_responder(launch: Launch) -> InitializeResponder:
    from app_server.startup.early_acp import acp_responder  # noqa: PLC0415  only for clients of that protocol

    return acp_responder(launch)


def _early_responders(launch: Launch, spoken: SpokenApi, server: Lazy[object]) -> EarlyResponders:
    from app_server.startup.early_responders import early_responders  # noqa: PLC0415  only for early requests

    return early_responders(launch, spoken, server)


def disable_pydantic_plugins() -> None:
    """The server has none. pydantic's switch saves the search for them, and in place of the module that searches an
    empty one saves what only that imports: 1.4 MiB of `importlib.metadata`, `email` and `zipfile`.
    """
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    loader = types.ModuleType("pydantic.plugin._loader")
    vars(loader)["get_plugins"] = tuple
    sys.modules.setdefault(loader.__name__, loader)


def refuse_inspection() -> None:
    """Deny other processes of the user access to this process's memory, environment and descriptors: they contain
    keys.
    """
    if sys.platform == "linux":
        ctypes = importlib.import_module("ctypes")  # takes as long as the rest of this module
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
