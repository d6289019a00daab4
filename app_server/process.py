"""The server as a process: what the command line and the environment say, the first answer, a clean end.

Kept light: the full server is loaded behind the greeting.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from app_server.greeting import EarlyAnswer, greet
from app_server.limits import Limits, limits_of
from app_server.transport.claim import claim_stdout
from protocol.jsonrpc import Request
from protocol.records import dataclass

log = logging.getLogger(__name__)

FULL_SERVER = "app_server.stdio_server"
EARLY_LIST = "app_server.early_list"

PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How this process was started."""

    home: Path
    cwd: Path
    environment: Mapping[str, str] = field(repr=False)
    settings: tuple[tuple[str, str], ...] = ()
    profile: str | None = None
    model: str | None = None
    approval_policy: str | None = None
    sandbox_mode: str | None = None
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    limits: Limits = Limits()


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
    plain = not launch.settings and launch.profile is None
    greeting = greet(0, write_fd, os.environ, _load, (lambda: _early(launch.home)) if plain else None)
    if greeting is not None:
        importlib.import_module(FULL_SERVER).run(write_fd, launch, greeting)
    # Threads that still wait for a disk or a name server must not hold the process.
    sys.stderr.flush()
    os._exit(0)


def _load() -> None:
    refuse_inspection()
    # Plugins are for programs that want to watch their own models; looking for them takes longer than a request.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # What is loaded stays: looking for garbage in it, now or at every full collection later, finds nothing.
    gc.disable()
    try:
        importlib.import_module(FULL_SERVER)
    finally:
        gc.freeze()
        gc.enable()


def _early(home: Path) -> EarlyAnswer:
    early = importlib.import_module(EARLY_LIST)

    def answer(request: Request) -> bytes | None:
        try:
            said: bytes | None = early.early_list(request, home)
        except Exception:  # what goes wrong here is the engine's to meet, and to tell the client of
            log.exception("a list could not be answered early")
            return None
        return said

    return answer


def refuse_inspection() -> None:
    """No other process of the user may read this one's memory, environment and descriptors: keys are in there."""
    if sys.platform == "linux":
        ctypes = importlib.import_module("ctypes")  # takes as long as the rest of this module
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def launched(args: argparse.Namespace, environment: Mapping[str, str]) -> Launch:
    """Raises ValueError with what was expected."""
    given = vars(args)
    pairs = []
    for text in given.get("config", ()):
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"-c expects key=value, got {text!r}")
        pairs.append((key.strip(), value))
    return Launch(
        home=server_home(environment),
        cwd=working_directory(),
        environment=dict(environment),
        settings=tuple(pairs),
        profile=given.get("profile"),
        model=given.get("model"),
        approval_policy=given.get("ask_for_approval"),
        sandbox_mode=given.get("sandbox"),
        enable=tuple(given.get("enable", ())),
        disable=tuple(given.get("disable", ())),
        limits=limits_of(environment),
    )


def server_home(environment: Mapping[str, str]) -> Path:
    """`$CODEX_HOME`, or `.codex` in the user's home directory."""
    named = environment.get("CODEX_HOME")
    if named:
        return Path(os.path.realpath(named))
    base = environment.get("HOME") or os.path.expanduser("~")
    # Without any home directory there is still a place that can be written.
    return Path(os.path.realpath(os.path.join(base if base != "~" else "/tmp", ".codex")))


def working_directory() -> Path:
    try:
        return Path(os.getcwd())
    except FileNotFoundError:  # it was deleted; conversations name their own
        return Path("/")
