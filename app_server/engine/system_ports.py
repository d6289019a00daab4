"""The resources that a server takes from its machine: clocks, random bytes, commands, the network.

The composition root passes it on, and no module below it reads a clock by itself, so a simulation can run the whole
server with a machine of its own.
"""

from __future__ import annotations

import os
import pwd
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from app_server import STORED_VERSION
from app_server.engine.http.interface import Http
from app_server.engine.http.lazy_http import LazyProviderHttp
from app_server.engine.ports import ProcessEnvironment
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.storage.disk import REAL_DISK, DiskCalls
from app_server_protocol.ids import new_conversation_id

if TYPE_CHECKING:
    from app_server.engine.model.model_client import RequestGate


class ModelHttp(Http, Protocol):
    """Connections that all conversations of a server share."""

    async def warm_up(self) -> None:
        """Do the preparations now that the first request would have to wait for."""
        ...

    async def aclose(self) -> None: ...


class SystemPorts(Struct, frozen=True, kw_only=True):
    """The machine that this process runs on."""

    time_ns: Callable[[], int] = time.time_ns
    """Clock that returns nanoseconds since 1970."""
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[int], bytes] = os.urandom
    disk: DiskCalls = REAL_DISK
    http: Callable[[Mapping[str, str]], ModelHttp] = LazyProviderHttp
    """Function that opens connections for a user's environment."""
    runner: Callable[..., CommandRunner] = CommandRunner
    """Function that makes the runner of commands, with the arguments of `CommandRunner`."""
    gate: RequestGate | None = None
    """Gate that decides when requests to models are sent, if this server shares a provider with others."""

    def wall_clock(self) -> float:
        """Return the seconds since 1970."""
        return self.time_ns() / 1e9

    def new_id(self) -> str:
        """Return a new UUID."""
        return str(uuid.UUID(bytes=self.random(16), version=4))

    def jitter(self) -> float:
        """Return a random number from 0 up to 1."""
        return int.from_bytes(self.random(6)) / (1 << 48)

    def process_environment(self, threads: Path, environment: Mapping[str, str]) -> ProcessEnvironment:
        """Return the values that the engine takes from this process. `threads` is the home of new conversations."""
        return ProcessEnvironment(
            threads=threads,
            environment=environment,
            version=STORED_VERSION,
            shell_path=_shell(environment),
            now=lambda: datetime.fromtimestamp(self.wall_clock()).astimezone(),
            clock=self.monotonic,
            wall_clock=self.wall_clock,
            jitter=self.jitter,
            disk=self.disk,
            new_conversation_id=lambda: new_conversation_id(self.time_ns() // 1_000_000, self.random(10)),
            new_id=self.new_id,
            gate=self.gate,
        )


SHELLS = frozenset({"bash", "zsh", "sh", "dash", "ash", "ksh", "mksh", "fish"})
"""Names of shells that run a line with `-lc`."""


def _shell(environment: Mapping[str, str]) -> str:
    """Return the user's login shell according to the system. If it runs no scripts or is not installed, as in a
    container or for a service, return bash, or else sh.
    """
    try:
        named = pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        named = environment.get("SHELL", "")
    if os.path.basename(named) in SHELLS and _runs(named):
        return named
    folders = ("/bin", "/usr/bin", *filter(os.path.isabs, environment.get("PATH", "").split(":")))
    return next((place for folder in folders if _runs(place := f"{folder}/bash")), "/bin/sh")


def _runs(program: str) -> bool:
    return os.path.isfile(program) and os.access(program, os.X_OK)
