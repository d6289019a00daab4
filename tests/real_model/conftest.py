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
    """Whether the first answer of each turn calls the shell, with arguments that the model writes under a grammar."""
    extra: dict[str, Json] = field(default_factory=dict)
    """Additional fields of each request."""

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        body, name = request.body, None
        if request.method == "POST":
            asked = json.loads(body)
            self.requests.append(ModelRequest(request.path, request.headers, asked))
            name = self._forced_tool(asked)
            if name is not None:
                asked = arguments_request(asked, name)
            body = json.dumps({**asked, **self.extra}).encode()
        place = urlsplit(self.address)
        async with await anyio.connect_tcp(str(place.hostname), place.port or 80) as server:
            head = (
                f"{request.method} {request.path} HTTP/1.1\r\nhost: {place.netloc}\r\nconnection: close\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            await server.send(head.encode() + body)
            if name is None:
                async for piece in server:
                    await stream.send(piece)
            else:
                await stream.send(as_call(b"".join([piece async for piece in server]), name))
        return False

    def _forced_tool(self, asked: Json) -> str | None:
        """Return the tool that the answer to this request has to call; None if the model is free to answer."""
        if not self.forces_calls or asked["messages"][-1]["role"] != "user":
            return None
        names = (tool["function"]["name"] for tool in asked.get("tools", ()))
        return next((name for name in names if name in COMMANDS), None)


def arguments_request(asked: Json, name: str) -> Json:
    """Return the request for the arguments of a call: llama.cpp holds the answer to their schema by a grammar. It
    forces no call of a tool for a model whose chat template has no tools.
    """
    schema: Json = {
        "type": "object",
        "properties": {"command": {"const": COMMANDS[name]}},
        "required": ["command"],
    }
    left_out = ("tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options")
    plain = {field: value for field, value in asked.items() if field not in left_out}
    return {
        **plain,
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}},
    }


def as_call(response: bytes, name: str) -> bytes:
    """Return a response of llama.cpp as the stream of an answer that calls the tool with these arguments. A refusal
    stays as it is.
    """
    head, _, body = response.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return response
    answer = json.loads(body)
    said = answer["choices"][0]["message"]["content"]
    call: Json = {
        "index": 0,
        "id": answer["id"],
        "type": "function",
        "function": {"name": name, "arguments": said},
    }
    kept = {field: answer[field] for field in ("id", "created", "model")}
    chunks: list[Json] = [
        {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": None}
            ]
        },
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": answer["usage"]},
    ]
    lines = [
        f"data: {json.dumps({**kept, 'object': 'chat.completion.chunk', **chunk})}\n\n" for chunk in chunks
    ]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return head + "".join([*lines, "data: [DONE]\n\n"]).encode()


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
