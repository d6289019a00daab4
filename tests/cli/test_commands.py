"""The console script and its commands as people and editors start them: `demo`, `doctor`."""

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from app_server import PROTOCOL_VERSION, __version__
from app_server.cli.chat.open_questions import SEEN_AFTER
from app_server.cli.demo.scripted_model import (
    LoopbackServer,
    ReceivedRequest,
    whole_response,
)
from app_server_protocol.encoding import Json
from tests.support import scripted_model
from tests.support.places import place_in
from tests.support.program import SCRIPT
from tests.support.terminal import Terminal

pytestmark = pytest.mark.process


def demo(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (SCRIPT, "demo", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=dict(os.environ) | {"TMPDIR": str(folder)} | environment,
    )


def test_everything_happens(short_folder: Path) -> None:
    done = demo(short_folder, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for shown in (
        "failed: expected 'Hello, World!'",  # the command's output
        '+echo "Hello, $1!"',  # the patch
        "The sandbox stopped me",
        "a second server resumes the stored thread\n> check\n",  # its history
        "passed: Hello, World!",  # after that
        "6 checks passed",
    ):
        assert shown in done.stdout
    assert "\x1b" not in done.stdout
    assert list(short_folder.iterdir()) == []


def test_nothing_is_approved_where_nobody_can_be_asked(short_folder: Path) -> None:
    done = demo(short_folder)
    assert done.returncode == 1
    assert "something was denied" in done.stdout
    assert "✗" not in done.stdout
    assert "passed: Hello, World!" not in done.stdout


def test_without_git_it_says_so(short_folder: Path) -> None:
    done = demo(short_folder, "--yes", PATH=str(short_folder))
    assert done.returncode == 1
    assert "app-server demo: git is not installed" in done.stderr


def test_a_person_at_a_terminal_is_asked(short_folder: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(short_folder)}
    with Terminal(columns=100, rows=60).start(
        (SCRIPT, "demo"), environment=environment, cwd=short_folder
    ) as terminal:
        terminal.wait_for("[s] stop and say why")
        time.sleep(2 * SEEN_AFTER)  # an answer that comes at once was typed for something else
        terminal.say("y")
        terminal.wait_for("failed: expected")
        terminal.wait_for("Change these files?")
        time.sleep(2 * SEEN_AFTER)
        terminal.say("n")
        terminal.wait_for("not everything was shown: something was denied")
        assert terminal.wait_for_end() == 0


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
    """Provider that lists models to clients with the key."""

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
    """Run `doctor`; return its exit status and its output of both streams."""
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
    assert "it answers and offers 2 models" in checks["provider desk"]["found"]
    assert (
        checks["mcp server local"]["found"]
        == "started, notes 1, MCP 2025-06-18, 5 tools: echo, fail, hang, ask, change"
    )
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


async def test_a_limit_that_is_no_number_is_told(tmp_path: Path) -> None:
    status, said = await doctor(tmp_path, APP_SERVER_MAX_REQUESTS="many")
    expected = "app-server doctor: APP_SERVER_MAX_REQUESTS expects a number of at least 1, got 'many'\n"
    assert (status, said) == (2, expected)


async def test_the_command_line_is_that_of_the_server(tmp_path: Path) -> None:
    status, said = await doctor(tmp_path, "-c", "nothing")
    assert (status, said.splitlines()[-2]) == (
        2,
        "app-server doctor: -c/--config: expected key=value, got 'nothing'",
    )
    status, printed = await doctor(tmp_path, "-c", "model_provider=nowhere")
    assert (status, "Model provider `nowhere` not found" in printed) == (1, True)


NOISE = """\
import os, sys

def hook(event, arguments):
    if event == "import" and arguments[0] == "{module}":
        print("stray print", flush=True)
        os.write(1, b"stray write\\n")

sys.addaudithook(hook)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (SCRIPT, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_it_says_its_own_version_and_that_of_the_protocol_as_clients_parse_it() -> None:
    done = run("--version")
    said = f"codex-cli {PROTOCOL_VERSION} (app-server {__version__})\n"
    assert (done.returncode, done.stdout) == (0, said)


@pytest.mark.parametrize("arguments", [("--help",), ("app-server", "--help")])
def test_it_helps(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert "--listen" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "app-server app-server",
        "--listen stdio:// app-server",
        "app-server --listen stdio://",
        "--stdio",
        "app-server --stdio -s read-only -a never",
    ],
)
async def test_it_serves_however_it_is_spawned(arguments: str, tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        async with place.server(command=(SCRIPT, *arguments.split())) as server:
            greeting = await server.client.call("getUserAgent")
            assert f"/{PROTOCOL_VERSION} " in greeting["userAgent"]
        assert server.process.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "-c model=mine -c model_reasoning_effort=high",
        "app-server -c model=mine -c model_reasoning_effort=high",
        "--config model=mine app-server --config model_reasoning_effort=high",
        "-c model=theirs -c model_reasoning_effort=high app-server -c model=mine",
        "app-server --profile swift",
        "--enable no_such_feature app-server --profile swift --disable no_such_feature",
    ],
)
async def test_settings_hold_before_and_after_the_subcommand(arguments: str, tmp_path: Path) -> None:
    """An unknown feature leads to a warning, and to no error."""
    profile = '[profiles.swift]\nmodel = "mine"\nmodel_reasoning_effort = "high"\n'
    async with place_in(tmp_path, tables=profile) as place:
        async with place.server(command=(SCRIPT, *arguments.split())) as server:
            opened = await server.client.call("newConversation", {"cwd": str(place.workspace)})
            assert (opened["model"], opened["reasoningEffort"]) == ("mine", "high")
            if "no_such_feature" in arguments:
                await server.client.listen(opened["conversationId"])
                warning = await server.client.anywhere("warning")
                assert "no_such_feature" in warning["params"]["msg"]["message"]
        assert server.process.returncode == 0


@pytest.mark.parametrize("module", ["pydantic", "httpcore2"])
async def test_a_stray_print_does_not_reach_the_wire(module: str, tmp_path: Path) -> None:
    """The print happens at start-up, and when the model is first asked."""
    (tmp_path / "sitecustomize.py").write_text(NOISE.replace("{module}", module))
    async with place_in(tmp_path) as place:
        place.environment["PYTHONPATH"] = str(tmp_path)
        place.model.replies[:] = [scripted_model.reply(scripted_model.says("hello"))]
        async with place.server() as server:
            await server.client.turn(await server.open())
        assert server.process.returncode == 0
    assert {"stray print", "stray write"} <= set((tmp_path / "server.log").read_text().splitlines())
