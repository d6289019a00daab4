"""The installed console script over real pipes, as an editor spawns it.

The client that is used here takes every line of stdout for a message and fails on any other.
"""

import subprocess
from pathlib import Path

import pytest

from app_server import PROTOCOL_VERSION
from tests.process.servers import place_in
from tests.support.scripted_model import reply, says
from tests.support.world import SCRIPT

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
    """A feature that is unknown is warned of, and no more."""
    profile = '[profiles.swift]\nmodel = "mine"\nmodel_reasoning_effort = "high"\n'
    async with place_in(tmp_path, more=profile) as place:
        async with place.server(command=(SCRIPT, *arguments.split())) as server:
            opened = await server.client.call("newConversation", {"cwd": str(place.workspace)})
            assert (opened["model"], opened["reasoningEffort"]) == ("mine", "high")
            if "no_such_feature" in arguments:
                await server.client.listen(opened["conversationId"])
                warning = await server.client.anywhere("warning")
                assert "no_such_feature" in warning["params"]["msg"]["message"]
        assert server.process.returncode == 0


@pytest.mark.parametrize("module", ["pydantic", "httpcore"])
async def test_a_stray_print_does_not_reach_the_wire(module: str, tmp_path: Path) -> None:
    """At start-up, and when the model is first asked."""
    (tmp_path / "sitecustomize.py").write_text(NOISE.replace("{module}", module))
    async with place_in(tmp_path) as place:
        place.more_environment["PYTHONPATH"] = str(tmp_path)
        place.model.replies[:] = [reply(says("hello"))]
        async with place.server() as server:
            await server.client.turn(await place.open(server.client))
        assert server.process.returncode == 0
    assert {"stray print", "stray write"} <= set((tmp_path / "server.log").read_text().splitlines())
