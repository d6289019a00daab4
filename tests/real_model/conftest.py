"""A real model on a real llama.cpp server, for the tests of `make real-model`. Without a model they are skipped."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketStream

from app_server.cli.demo.scripted_model import ReceivedRequest
from app_server_protocol.encoding import Json
from tests.support import client, world
from tests.support.scripted_model import ModelRequest, ScriptedModel
from tests.support.world import World, world_with

REAL_MODEL = os.environ.get("REAL_MODEL", "")
"""Path of a GGUF file."""

HERE = Path(__file__).parent
SLOW = 240.0
"""Maximum time of a small model on a loaded machine, in seconds."""

COMMANDS: Json = {"shell": ["echo", "seen"], "shell_command": "echo seen"}
"""Single command that a forced call can have, by the name of the tool, which depends on the window. No command that a
tiny model makes up is run.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and not REAL_MODEL:
            item.add_marker(pytest.mark.skip(reason="REAL_MODEL names no GGUF file (make real-model)"))


@dataclass(slots=True)
class Relay(ScriptedModel):
    """Model that relays requests to a llama.cpp server, and its answers unchanged."""

    address: str = ""
    forces_calls: bool = False
    """Whether the first request of each turn has to call the shell. The server enforces it by a grammar."""
    extra: dict[str, Json] = field(default_factory=dict)
    """Additional fields of each request."""

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        body = request.body
        if request.method == "POST":
            asked = json.loads(body)
            self.requests.append(ModelRequest(request.path, request.headers, asked))
            body = json.dumps({**self._forced(asked), **self.extra}).encode()
        place = urlsplit(self.address)
        async with await anyio.connect_tcp(str(place.hostname), place.port or 80) as server:
            head = (
                f"{request.method} {request.path} HTTP/1.1\r\nhost: {place.netloc}\r\nconnection: close\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            await server.send(head.encode() + body)
            async for piece in server:
                await stream.send(piece)
        return False

    def _forced(self, asked: Json) -> Json:
        last = asked["messages"][-1]["role"]
        shells = [tool["function"] for tool in asked.get("tools", ()) if tool["function"]["name"] in COMMANDS]
        if not self.forces_calls or last != "user" or not shells:
            return asked
        schema: Json = {
            "type": "object",
            "properties": {"command": {"const": COMMANDS[shells[0]["name"]]}},
            "required": ["command"],
        }
        function = {**shells[0], "parameters": schema}
        return {**asked, "tools": [{"type": "function", "function": function}], "tool_choice": "required"}


class RealWorld(Protocol):
    def __call__(self, relay: Relay, **options: Json) -> AbstractAsyncContextManager[World]: ...


@contextmanager
def llama_server(tokens: int) -> Iterator[str]:
    """Serve the model with a window of `tokens` tokens; yield the address."""
    command = (sys.executable, str(HERE / "llama_server.py"), REAL_MODEL, str(tokens))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().decode().strip()
            assert address, "the server did not start"
            yield address
        finally:
            server.kill()


@pytest.fixture
def real_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealWorld:
    monkeypatch.setattr(client, "PATIENCE", SLOW)
    monkeypatch.setattr(world, "LEAVES_WITHIN", 60.0)

    @asynccontextmanager
    async def made(relay: Relay, **options: Json) -> AsyncIterator[World]:
        config = {
            "model": "local",
            "sandbox_mode": "read-only",
            "model_max_output_tokens": 64,
            **options.pop("config", {}),
        }
        provider = {"name": "llamacpp", "wire": "chat", "stream_max_retries": 1}
        async with world_with(tmp_path, relay, config=config, provider=provider, **options) as w:
            yield w

    return made
