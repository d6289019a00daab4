"""`app-server doctor` as a process, with real probes, an MCP server and a provider on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from app_server.demo.scripted_model import LoopbackServer, ReceivedRequest, whole_response
from protocol.base import Json

SCRIPT = str(Path(sys.executable).with_name("app-server"))
MCP_SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
KEY = "sk-of-the-desk-1234567890"
CONFIG = """\
model = "small"
model_provider = "desk"

[model_providers.desk]
name = "Desk"
base_url = "{url}"
env_key = "DESK_KEY"
"""
WITH_MCP = """
[mcp_servers.local]
command = "{python}"
args = ["-I", "-S", "{server}"]
"""


class Provider(LoopbackServer):
    """Lists models for those who have the key."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        self.requests.append(request.line)
        if request.headers.get("authorization") != f"Bearer {KEY}":
            said = request.headers.get("authorization", "nothing")
            await stream.send(whole_response(401, f"not a key: {said}".encode()))
        else:
            models = {"data": [{"id": "small"}, {"id": "large"}]}
            await stream.send(whole_response(200, json.dumps(models).encode()))
        return True


@asynccontextmanager
async def configured(root: Path, more: str = "") -> AsyncIterator[Provider]:
    provider = Provider()
    async with provider.serving() as url:
        (root / "home").mkdir(exist_ok=True)
        (root / "home" / "config.toml").write_text(CONFIG.format(url=url) + more)
        yield provider


def environment(root: Path, **more: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CODEX", "OPENAI"))}
    return kept | {"CODEX_HOME": str(root / "home"), "NO_PROXY": "127.0.0.1"} | more


async def doctor(root: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """The exit status and what it printed anywhere."""
    done = await anyio.run_process(
        (SCRIPT, "doctor", *arguments),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        check=False,
        env=environment(root, **more),
        cwd=root,
    )
    return done.returncode, done.stdout.decode()


def by_name(printed: str) -> dict[str, Json]:
    return {check["name"]: check for check in json.loads(printed)["checks"]}


async def test_a_machine_on_which_all_is_well(tmp_path: Path) -> None:
    more = WITH_MCP.format(python=sys.executable, server=MCP_SERVER)
    async with configured(tmp_path, more) as provider:
        status, printed = await doctor(tmp_path, "--online", "--json", DESK_KEY=KEY)
        checks = by_name(printed)
    assert checks["provider desk"]["found"].endswith("it answers and offers 2 models")
    assert checks["mcp server local"]["found"] == "started, 4 tools: echo, fail, hang, ask"
    assert {"python", "system", "home", "config", "git", "locks"} <= checks.keys()
    for layer in ("namespaces", "Landlock", "seccomp") if sys.platform == "linux" else ():
        assert f"{layer}" in checks["sandbox"]["found"]
    assert provider.requests == ["GET /v1/models HTTP/1.1"]
    broken = {name for name, check in checks.items() if check["status"] == "broken"}
    assert broken <= {"sandbox"}, "the machine may have none"
    assert (status, json.loads(printed)["ok"]) == (1 if broken else 0, not broken)
    assert KEY not in printed


async def test_a_refused_key_is_named_but_not_shown(tmp_path: Path) -> None:
    async with configured(tmp_path):
        status, printed = await doctor(tmp_path, "--online", DESK_KEY="sk-wrong-0987654321")
    assert status == 1
    assert "broken   provider desk: The provider `desk` refused the key in DESK_KEY\n" in printed
    assert "sk-wrong" not in printed


async def test_without_online_nobody_is_asked(tmp_path: Path) -> None:
    async with configured(tmp_path) as provider:
        _, printed = await doctor(tmp_path, DESK_KEY=KEY)
    assert provider.requests == []
    assert "not asked without --online" in printed


async def test_what_is_broken_is_found_and_the_rest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "sessions").write_text("")
    (tmp_path / "home" / "config.toml").write_text('model = "x"\nsandbox_mode = "none"\n')
    status, printed = await doctor(tmp_path)
    assert status == 1
    assert f"{tmp_path}/home/config.toml:2:1: `sandbox_mode` must be one of" in printed
    assert f"The home {tmp_path}/home cannot be written" in printed
    assert "git version" in printed


async def test_the_command_line_is_that_of_the_server(tmp_path: Path) -> None:
    status, said = await doctor(tmp_path, "-c", "nothing")
    assert (status, said.splitlines()[-1]) == (
        2,
        "app-server doctor: error: argument -c/--config: expected key=value, got 'nothing'",
    )
    status, printed = await doctor(tmp_path, "-c", "model_provider=nowhere")
    assert (status, "Model provider `nowhere` not found" in printed) == (1, True)
