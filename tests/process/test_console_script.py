"""The installed console script over real pipes, as an editor spawns it.

The client that is used here takes every line of stdout for a message and fails on any other.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app_server import PROTOCOL_VERSION
from app_server.demo.scripted_model import Author, Reply, ScriptedModel, in_order, reply, runs, says
from protocol.base import Json
from tests.support.stdio_client import Client, ServerMessage, spawned

SCRIPT = str(Path(sys.executable).with_name("app-server"))
LEAVES_WITHIN = 2.0
"""What the protocol's clients grant before they kill."""

CONFIG = """\
model = "scripted"
model_provider = "scripted"
approval_policy = "untrusted"
sandbox_mode = "{sandbox}"

[model_providers.scripted]
name = "Scripted"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""

NOISE = """\
import os, sys

def hook(event, arguments):
    if event == "import" and arguments[0] == "{module}":
        print("stray print", flush=True)
        os.write(1, b"stray write\\n")

sys.addaudithook(hook)
"""


@dataclass(slots=True)
class World:
    """A home, a workspace and a model."""

    root: Path
    more_environment: dict[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def log(self) -> Path:
        return self.root / "stderr.txt"

    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CODEX", "OPENAI"))}
        return kept | {"CODEX_HOME": str(self.root / "home"), "NO_PROXY": "127.0.0.1"} | self.more_environment

    def server(self, *arguments: str) -> AbstractAsyncContextManager[Client]:
        return spawned((SCRIPT, *arguments), self.environment(), self.log)

    @asynccontextmanager
    async def model(self, author: Author, sandbox: str = "workspace-write") -> AsyncIterator[ScriptedModel]:
        model = ScriptedModel(author)
        async with model.serving() as url:
            (self.root / "home" / "config.toml").write_text(CONFIG.format(url=url, sandbox=sandbox))
            yield model


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "home").mkdir()
    (tmp_path / "workspace").mkdir()
    return World(tmp_path)


async def greet(client: Client) -> Json:
    return await client.request("initialize", {"clientInfo": {"name": "test", "version": "1"}})


async def converse(client: Client, world: World) -> str:
    """A conversation that is listened to."""
    opened = await client.request("newConversation", {"cwd": str(world.workspace)})
    await client.request("addConversationListener", {"conversationId": opened["conversationId"]})
    return str(opened["conversationId"])


async def say(client: Client, conversation: str, text: str) -> None:
    items = [{"type": "text", "data": {"text": text}}]
    await client.request("sendUserMessage", {"conversationId": conversation, "items": items})


async def receive_until(client: Client, method: str) -> list[ServerMessage]:
    heard = [await client.receive()]
    while heard[-1].method != method:
        heard.append(await client.receive())
    return heard


def talk(text: str) -> Reply:
    return reply(*says(text))


# --- the command line
def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (SCRIPT, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_it_says_its_version_as_clients_parse_it() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"codex-cli {PROTOCOL_VERSION}\n")


@pytest.mark.parametrize("arguments", [("--help",), ("app-server", "--help")])
def test_it_helps(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert "--listen" in done.stdout


def test_it_serves_no_other_transport() -> None:
    done = run("--listen", "ws://127.0.0.1:1234")
    assert (done.returncode, done.stdout) == (2, "")
    assert "stdio://" in done.stderr


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
async def test_it_serves_however_it_is_spawned(arguments: str, world: World) -> None:
    async with world.server(*arguments.split()) as client:
        greeting = await greet(client)
        assert f"/{PROTOCOL_VERSION} " in greeting["userAgent"]
        assert await client.request("getUserAgent") == greeting
        assert await client.close(LEAVES_WITHIN) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "-c model=mine -c model_reasoning_effort=high",
        "app-server -c model=mine -c model_reasoning_effort=high",
        "--config model=mine app-server --config model_reasoning_effort=high",
        "-c model=theirs -c model_reasoning_effort=high app-server -c model=mine",
        "app-server --profile swift",
    ],
)
async def test_settings_hold_before_and_after_the_subcommand(arguments: str, world: World) -> None:
    profile = '[profiles.swift]\nmodel = "mine"\nmodel_reasoning_effort = "high"\n'
    (world.root / "home" / "config.toml").write_text(profile)
    async with world.server(*arguments.split()) as client:
        await greet(client)
        opened = await client.request("newConversation", {"cwd": str(world.workspace)})
    assert (opened["model"], opened["reasoningEffort"]) == ("mine", "high")


@pytest.mark.parametrize(
    "arguments",
    [
        "--enable no_such_feature",
        "app-server --enable no_such_feature",
        "--disable no_such_feature app-server",
    ],
)
async def test_an_unknown_feature_is_warned_of_and_no_more(arguments: str, world: World) -> None:
    async with world.server(*arguments.split()) as client:
        await greet(client)
        await converse(client, world)
        warning = (await receive_until(client, "codex/event/warning"))[-1]
        assert "no_such_feature" in warning.params["msg"]["message"]
        assert await client.close(LEAVES_WITHIN) == 0


# --- a turn
async def test_a_turn_with_a_command_that_is_approved(world: World) -> None:
    command = ["sh", "-c", "echo made > made.txt; cat made.txt"]
    script = in_order(reply(*says("I will make it."), runs(command, "call-1")), talk("It is made."))
    async with world.model(script) as model, world.server("app-server") as client:
        await greet(client)
        await client.notify("initialized")
        conversation = await converse(client, world)
        await say(client, conversation, "make a file")
        asking = (await receive_until(client, "execCommandApproval"))[-1]
        assert asking.params["command"] == command
        assert not (world.workspace / "made.txt").exists()
        await client.respond(asking, {"decision": "approved"})
        heard = await receive_until(client, "codex/event/task_complete")
        assert await client.close(LEAVES_WITHIN) == 0

    assert heard[-1].params["msg"]["last_agent_message"] == "It is made."
    assert heard[-1].params["conversationId"] == conversation
    ended = [each.params["msg"] for each in heard if each.method == "codex/event/exec_command_end"]
    assert [(each["exit_code"], each["aggregated_output"]) for each in ended] == [(0, "made\n")]
    assert "made" in model.requests[1]["input"][-1]["output"]


# --- the end


def marked(mark: str) -> list[int]:
    """Descriptors of the processes that have the mark among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(os.pidfd_open(int(path.parent.name)))
        except OSError:  # it has ended meanwhile
            continue
    return found


# --- what a library prints
@pytest.mark.parametrize("module", ["pydantic", "httpcore"])
async def test_a_stray_print_does_not_reach_the_wire(module: str, world: World) -> None:
    """At start-up, and when the model is first asked."""
    (world.root / "sitecustomize.py").write_text(NOISE.replace("{module}", module))
    world.more_environment["PYTHONPATH"] = str(world.root)
    async with world.model(in_order(talk("hello"))), world.server() as client:
        await greet(client)
        await say(client, await converse(client, world), "hi")
        await receive_until(client, "codex/event/task_complete")
        assert await client.close(LEAVES_WITHIN) == 0
    assert {"stray print", "stray write"} <= set(world.log.read_text().splitlines())
