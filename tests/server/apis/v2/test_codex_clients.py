"""Clients of codex at a shared server: its own proxy, and its terminal interface with `--remote`.

REFERENCE_CODEX_THREADS names the program: REFERENCE_CODEX_THREADS=/path/to/codex make test ARGS="-k codex_clients"
"""

import os
import subprocess
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.engine.support.socket_paths import place_of_home
from app_server_protocol.encoding import Json
from benchmarks.shared import WebSocket
from tests.support.places import Place, place_in
from tests.support.scripted_model import reply, says
from tests.support.shared import running_server
from tests.support.terminal import Terminal

REFERENCE = os.environ.get("REFERENCE_CODEX_THREADS", "")

pytestmark = [
    pytest.mark.process,
    pytest.mark.integration,
    pytest.mark.skipif(not REFERENCE, reason="REFERENCE_CODEX_THREADS names no program"),
]


@pytest.fixture
async def place(short_folder: Path) -> AsyncIterator[Place]:
    async with place_in(short_folder) as made:
        yield made


def call(wire: WebSocket, id: int, method: str, params: Json) -> Json:
    wire.send({"id": id, "method": method, "params": params})
    while (message := wire.receive()).get("id") != id or "method" in message:
        pass
    return message["result"]


async def test_a_client_behind_the_proxy_of_codex_has_a_turn(place: Place) -> None:
    place.model.replies[:] = [reply(says("through its proxy"))]

    def talk() -> str:
        command = (REFERENCE, "app-server", "proxy")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=place.variables(), cwd=place.workspace
        ) as process:
            wire = WebSocket(process)
            call(wire, 1, "initialize", {"clientInfo": {"name": "t", "version": "1"}, "capabilities": {}})
            thread = call(wire, 2, "thread/start", {"cwd": str(place.workspace)})["thread"]["id"]
            call(wire, 3, "turn/start", {"threadId": thread, "input": [{"type": "text", "text": "hi"}]})
            said = ""
            while (message := wire.receive()).get("method") != "turn/completed":
                if message.get("method") == "item/completed":
                    said += message["params"]["item"].get("text", "")
            process.kill()
            return said

    async with running_server(place):
        with anyio.fail_after(60):
            assert await anyio.to_thread.run_sync(talk) == "through its proxy"


@pytest.mark.parametrize("cd", [True, False], ids=["with --cd", "without --cd"])
async def test_the_terminal_interface_of_codex_has_a_turn(place: Place, cd: bool) -> None:
    place.model.replies[:] = [reply(says("through its terminal")) for _ in range(3)]
    where = ("--cd", str(place.workspace)) if cd else ()
    address = f"unix://{place_of_home(str(place.home)).socket}"

    def talk() -> None:
        environment = {**place.variables(), "TERM": "xterm-256color"}
        with Terminal(100, 40) as terminal:
            terminal.start(
                (REFERENCE, "--remote", address, *where, "hello"),
                environment=environment,
                cwd=place.workspace,
            )
            if cd:  # it does not ask about other folders
                terminal.wait_for("Trust this folder?")
                # It drops keys that come before the question is completely drawn.
                terminal.press_until("\r", lambda: "Trust this folder?" not in terminal.text)
            terminal.wait_for("through its terminal")

    async with running_server(place):
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(talk)
    projects = tomllib.loads((place.home / "config.toml").read_text()).get("projects", {})
    assert projects == ({str(place.workspace.resolve()): {"trust_level": "trusted"}} if cd else {})
