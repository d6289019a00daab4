"""Servers as processes of their own, several after or beside one another on one home; what they do to files may be
watched, and they may be killed."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process

from protocol.structs import Json
from tests.support.client import Client, ProcessWire
from tests.support.scripted_model import ScriptedModel
from tests.support.world import PATH, SCRIPT

PATIENCE = 60.0
"""Seconds for whatever a server is asked to do while a test has it."""

CONFIG = """\
model = "scripted"
model_provider = "scripted"
approval_policy = "{policy}"
sandbox_mode = "danger-full-access"

[model_providers.scripted]
name = "Scripted"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
{more}
"""

WATCHER = """\
import json, os, sys

_calls = os.open(os.environ["WATCHED_CALLS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
_fsync = os.fsync


def _tell(call, path):
    os.write(_calls, json.dumps([call, path]).encode() + b"\\n")


def fsync(fd):
    _fsync(fd)
    _tell("fsync", os.readlink(f"/proc/self/fd/{fd}"))


os.fsync = fsync
"""
"""A `sitecustomize` that tells of each fsync once it is done."""


@dataclass(slots=True)
class Running:
    """A server and its client."""

    client: Client
    process: Process
    killed: bool = False

    def kill(self) -> None:
        self.killed = True
        self.process.kill()


@dataclass(slots=True)
class Place:
    """A home, a workspace, a model."""

    root: Path
    model: ScriptedModel
    more_environment: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def environment(self) -> Mapping[str, str]:
        own = {
            "PATH": PATH,
            "HOME": str(self.root / "user"),
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1",
            "CODEX_HOME": str(self.home),
        }
        return own | self.more_environment

    def rollouts(self) -> list[Path]:
        return sorted(self.home.glob("sessions/**/rollout-*.jsonl"))

    def watch(self) -> None:
        """From now on, servers tell of their calls."""
        (self.root / "watcher").mkdir()
        (self.root / "watcher" / "sitecustomize.py").write_text(WATCHER)
        self.more_environment |= {
            "PYTHONPATH": str(self.root / "watcher"),
            "WATCHED_CALLS": str(self.root / "calls"),
        }

    def calls(self, name: str) -> list[str]:
        """The paths of calls of that name, so far."""
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [where for call, where in map(json.loads, lines) if call == name]

    @asynccontextmanager
    async def server(
        self, *, command: Sequence[str] = (SCRIPT, "app-server"), shell: str = ""
    ) -> AsyncIterator[Running]:
        """Initialized. What it wrote has been read, and it is gone, when the block is left. `shell` runs before it, in
        its process."""
        full = ("sh", "-c", f'{shell}; exec "$@"', "sh", *command) if shell else command
        with (self.root / "server.log").open("ab") as log:
            process = await anyio.open_process(full, stderr=log, env=self.environment, cwd=self.workspace)
        wire = ProcessWire(process)
        running = Running(Client(wire), process)
        try:
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as group:
                    group.start_soon(running.client.read)
                    await running.client.initialize()
                    yield running
                    if not running.killed:
                        await wire.close()
        finally:
            if process.returncode is None and running.killed:
                process.kill()
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(10):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                await process.aclose()

    async def open(self, client: Client) -> str:
        return await client.open(cwd=str(self.workspace))

    async def resume(self, client: Client, **how: str) -> Json:
        """The answer; the conversation is listened to."""
        resumed = await client.call("resumeConversation", how)
        await client.listen(resumed["conversationId"])
        return resumed


@asynccontextmanager
async def place_in(root: Path, *, policy: str = "never", more: str = "") -> AsyncIterator[Place]:
    for folder in ("home", "workspace", "user"):
        (root / folder).mkdir(exist_ok=True)
    model = ScriptedModel()
    async with model.serving() as url:
        config = CONFIG.format(url=url, policy=policy, more=more)
        (root / "home" / "config.toml").write_text(config)
        yield Place(root, model)
