"""A rig that starts a conversation's servers, calls their tools, and observes their processes."""

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpServerConfig, McpStdioTransport
from app_server.engine.mcp.mcp_errors import StartFailure
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.runtime_interface import Elicit, McpRuntime
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import McpServerState, McpServerStateChanged
from tests.support.processes import runs
from tests.support.waiting import until

FAKE = Path(__file__).with_name("fake_server.py")
USER = {"HOME": "/home/u", "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


both_eras = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])


def fake(
    mode: str, log: Path, name: str = "fake", *, modern: bool = False, **settings: Json
) -> McpServerConfig:
    """Return a table for the misbehaving server in one of its modes, and in one of the eras."""
    env: Mapping[str, str] = settings.pop("env", {})
    era = ("modern",) if modern else ()
    transport = McpStdioTransport(
        command=sys.executable, args=("-I", "-S", str(FAKE), mode, str(log), *era), env=env
    )
    limits: dict[str, Json] = {"startup_timeout_sec": 5.0, "tool_timeout_sec": 5.0} | settings
    return McpServerConfig(name=name, transport=transport, **limits)


@dataclass
class Rig:
    """Rig that opens managers on a folder of their own."""

    folder: Path
    user: dict[str, str] = field(default_factory=lambda: dict(USER))
    elicit: Elicit | None = None
    discovers_first: bool = False
    told: list[StartFailure] = field(default_factory=list)
    states: list[tuple[str, McpServerState]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def runtime(self, runner: CommandRunner) -> McpRuntime:
        def remember(change: McpServerStateChanged) -> None:
            self.states.append((change.server, change.state))
            if change.error is not None:
                self.told.append(
                    StartFailure(change.server, change.error, auth_required=change.login_required)
                )

        return McpRuntime(
            environment=self.user,
            home=str(self.folder),
            cwd=str(self.folder / "workspace"),
            runner=runner,
            version="1.2.3",
            discovers_first=self.discovers_first,
            elicit=self.elicit,
            on_state=remember,
        )

    @contextlib.asynccontextmanager
    async def opened(
        self, *configs: McpServerConfig, reserved: Collection[str] = ()
    ) -> AsyncIterator[McpManager]:
        with anyio.fail_after(30):
            async with (
                CommandRunner(sys.executable, str(self.folder), {}) as runner,
                anyio.create_task_group() as group,
            ):
                runtime = self.runtime(runner)
                servers = {config.name: config for config in configs}
                manager = McpManager(servers, lambda: runtime, lambda: reserved)
                group.start_soon(manager.run_servers)
                await manager.ready()
                try:
                    yield manager
                finally:
                    await manager.close()

    @contextlib.asynccontextmanager
    async def fake(self, mode: str, **settings: Json) -> AsyncIterator[McpManager]:
        async with self.opened(fake(mode, self.log, **settings)) as manager:
            yield manager

    def notes(self, log: Path | None = None) -> list[dict[str, Json]]:
        path = log or self.log
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def received(self, method: str) -> list[dict[str, Json]]:
        """Return the messages of that method that the server received."""
        messages = [note["received"] for note in self.notes() if "received" in note]
        return [message for message in messages if message.get("method") == method]

    def pids(self) -> list[int]:
        return [note["pid"] for note in self.notes() if "pid" in note]


async def gone(pids: list[int]) -> bool:
    """Wait until the processes have ended."""
    await until(lambda: not any(map(runs, pids)))
    return True


def http(url: str, name: str = "web", **settings: Json) -> McpServerConfig:
    """Return a table for a server that is reached over HTTP."""
    of_transport = {"bearer_token_env_var", "http_headers", "env_http_headers"}
    transport = McpHttpTransport(
        url=url, **{key: value for key, value in settings.items() if key in of_transport}
    )
    limits = {key: value for key, value in settings.items() if key not in of_transport}
    return McpServerConfig(name=name, transport=transport, **limits)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
