"""The server in this process, as a connector for the client library (`app_server.client`): no subprocess, no pipes.

A composition root of its own: it reads the environment and the working directory if they are not given. Commands still
run in processes of their own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from app_server.engine.support import lazy_imports

lazy_imports.install()  # before the server is imported: a front end waits for what it does not need else

from app_server.engine.config.config_values import CliOverrides
from app_server.engine.sandbox.plan import KeptFolders
from app_server.engine.support.limits import limits_of
from app_server.engine.system_ports import SystemPorts
from app_server.server.bootstrap.launch import server_home, working_directory
from app_server.server.composition import serve
from app_server.server.server_settings import ServerSettings
from app_server.server.transport.memory import MemoryTransport, memory_pair

if TYPE_CHECKING:
    from app_server.engine.model.model_client import RequestGate

log = logging.getLogger(__name__)

UNREAD_WRITES = 16
"""Number of unread writes of one side above which its writer waits."""

ENDS_WITHIN = 5.0
"""Time for the server to store everything after its client has left, in seconds."""


class InProcessConnector(Struct, frozen=True, kw_only=True):
    """`AppServer.connect(InProcessConnector())` serves the user's own home with the process's environment."""

    home: Path | None = None
    """Folder of settings, logins and threads; `$CODEX_HOME`, or `.codex` in the user's home, if it is None."""
    cwd: Path | None = None
    environment: Mapping[str, str] | None = None
    overrides: CliOverrides = CliOverrides()
    """Settings as the command line would set them."""
    threads: Path | None = None
    """Home in which new threads are stored; that of the settings if it is None."""
    kept: KeptFolders = KeptFolders()
    """Folders that no command may change, besides the home."""
    gate: RequestGate | None = None
    """Gate that decides when requests to models are sent; at once if it is None."""
    takes_codex_key: bool = False
    """Whether `CODEX_API_KEY` of the environment takes precedence over every login, as in `codex exec`."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MemoryLink]:
        server_end, client_end = memory_pair(buffered=UNREAD_WRITES)
        link = MemoryLink(client_end)
        async with anyio.create_task_group() as group:
            group.start_soon(link.serve, server_end, self._settings(), name="server")
            try:
                yield link
            finally:
                await link.close()
                with anyio.move_on_after(ENDS_WITHIN, shield=True):
                    await link.ended.wait()
                group.cancel_scope.cancel()

    def _settings(self) -> ServerSettings:
        environment = dict(os.environ if self.environment is None else self.environment)
        return ServerSettings(
            home=self.home or server_home(environment),
            cwd=self.cwd or working_directory(),
            environment=environment,
            cli=self.overrides,
            threads=self.threads,
            kept=self.kept,
            machine=SystemPorts(gate=self.gate),
            takes_codex_key=self.takes_codex_key,
            limits=limits_of(environment),
        )


class MemoryLink:
    """The client's end, and the server behind it (`app_server.client.link.ServerLink`)."""

    def __init__(self, end: MemoryTransport) -> None:
        self._end, self.lines, self.write = end, end.lines, end.write
        self._cause = "the server has ended"
        self.ended = anyio.Event()

    async def serve(self, server_end: MemoryTransport, settings: ServerSettings) -> None:
        """Run the server until its client leaves. An error of the server ends the connection, and not the program."""
        try:
            await serve(server_end, settings)
        except Exception as error:
            log.exception("the server in this process failed")
            self._cause = f"the server failed: {error!r}"
        finally:
            server_end.close()
            self.ended.set()

    async def close(self) -> None:
        self._end.close()

    async def cause_of_end(self) -> str:
        return self._cause
