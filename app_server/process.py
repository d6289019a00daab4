"""The server as a process: home, environment, stdin and stdout, and a clean end."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio

from app_server.core.config.types import CliOverrides
from app_server.server import ServerSettings, serve
from app_server.transport.stdio import StdioTransport, claim_stdout
from protocol.policy import AskForApproval


def serve_stdio(args: argparse.Namespace) -> int:
    """Serve this process's stdin and stdout until the client leaves."""
    try:
        cli = cli_overrides(args)
    except ValueError as error:
        print(f"app-server: {error}", file=sys.stderr)  # noqa: T201  nobody is served yet
        return 2
    settings = ServerSettings(
        home=server_home(os.environ), cwd=working_directory(), environment=dict(os.environ), cli=cli
    )
    write_fd = claim_stdout()
    anyio.run(_run, write_fd, settings)
    # Threads that still wait for a disk or a name server must not hold the process.
    sys.stderr.flush()
    os._exit(0)


async def _run(write_fd: int, settings: ServerSettings) -> None:
    await serve(StdioTransport(0, write_fd), settings)


def server_home(environment: Mapping[str, str]) -> Path:
    """`$CODEX_HOME`, or `.codex` in the user's home; where there is none, in the working directory's place."""
    named = environment.get("CODEX_HOME")
    if named:
        return Path(os.path.realpath(named))
    base = environment.get("HOME") or os.path.expanduser("~")
    return Path(os.path.realpath(os.path.join(base if base != "~" else "/tmp", ".codex")))


def working_directory() -> Path:
    try:
        return Path(os.getcwd())
    except FileNotFoundError:  # it was deleted; conversations name their own
        return Path("/")


def cli_overrides(args: argparse.Namespace) -> CliOverrides:
    """The command line as a layer of the configuration. Raises ValueError with what was expected."""
    given = vars(args)
    pairs = []
    for text in given.get("config", ()):
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"-c expects key=value, got {text!r}")
        pairs.append((key.strip(), value))
    policy = given.get("ask_for_approval")
    return CliOverrides(
        settings=tuple(pairs),
        profile=given.get("profile"),
        model=given.get("model"),
        approval_policy=AskForApproval(policy) if policy else None,
        sandbox_mode=given.get("sandbox"),
        enable=tuple(given.get("enable", ())),
        disable=tuple(given.get("disable", ())),
    )
