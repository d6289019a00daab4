"""The plugins of `editors/` in their hosts: a turn with two approvals, one that is interrupted, the thread again."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from protocol.structs import Json
from tests.support.scripted_model import Hold, begins_to_say, patches, reply, says, script, word
from tests.support.world import SCRIPT, MakeWorld, World
from tests.surroundings.npm import npm_packages

EDITORS = Path(__file__).parent.parent.parent / "editors"
ASKS: Json = {"approval_policy": "untrusted"}
PATCH = "*** Begin Patch\n*** Update File: greet.txt\n@@\n-hello\n+good day\n*** Add File: new.txt\n+new\n*** End Patch"
PATIENCE = 300.0


def replies() -> tuple[Json, ...]:
    look = reply(
        begins_to_say(), word("I "), word("look."), says("I look."), script("echo made > made.txt", "c1")
    )
    half = reply(begins_to_say(), word("half"), Hold())
    return look, reply(patches(PATCH, "c2")), reply(says("All done.", "msg-2")), half


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def run(*command: str, cwd: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "traceback" not in done.stderr, done.stderr


async def play(w: World, *command: str) -> Json:
    """What the plugin's own test has seen."""
    result = w.root / "result.json"
    environment = {**w.environment, "APP_SERVER": SCRIPT, "RESULT": str(result)}
    await anyio.to_thread.run_sync(partial(run, *command, cwd=w.workspace, environment=environment))
    return json.loads(result.read_text())


def check(w: World, seen: Json) -> None:
    assert (w.workspace / "made.txt").read_text() == "made\n"
    assert (w.workspace / "greet.txt").read_text() == "good day\n"
    assert "-hello" in seen["diff"]
    assert "+good day" in seen["diff"]
    assert "+new" in seen["diff"]
    for text in (seen["live"], seen["again"]):
        order = (
            "please begin",
            "I look.",
            "echo made",
            "exit code 0",
            "greet.txt",
            "All done.",
            "and now?",
            "half",
        )
        places = [text.index(each) for each in order]
        assert places == sorted(places), text
    assert seen["id"] in w.rollouts()[0].name
    assert seen["exit"] == 0
    assert w.model.requests[-1].texts() == ["please begin", "and now?"]


async def test_the_neovim_plugin_holds_a_turn_with_approvals(world: MakeWorld) -> None:
    nvim, folder = program("nvim"), EDITORS / "nvim"
    async with world(*replies(), config=ASKS, files={"greet.txt": "hello\n"}) as w:
        runs = (nvim, "--headless", "-u", "NONE", "-i", "NONE", "-n", "--cmd", f"set runtimepath^={folder}")
        plugin, test = folder / "plugin" / "app_server.lua", folder / "test" / "turns.lua"
        seen = await play(w, *runs, "-c", f"luafile {plugin}", "-c", f"luafile {test}")
        check(w, seen)


async def test_the_emacs_package_holds_a_turn_with_approvals(world: MakeWorld) -> None:
    emacs, folder = program("emacs"), EDITORS / "emacs"
    async with world(*replies(), config=ASKS, files={"greet.txt": "hello\n"}) as w:
        test = folder / "test" / "turns.el"
        seen = await play(w, emacs, "-Q", "--batch", "-L", str(folder), "-l", "app-server", "-l", str(test))
        check(w, seen)


NPM_PACKAGES = ("typescript@5.9.3", "@types/node@20.19.0", "@types/vscode@1.80.0")


@pytest.fixture
def extension(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> tuple[str, Path]:
    """The node program, and the extension for VS Code as it was compiled."""
    node, (compiler,) = npm_packages(pytestconfig, "vscode-extension", NPM_PACKAGES, ["typescript/bin/tsc"])
    folder = tmp_path_factory.mktemp("vscode") / "extension"
    shutil.copytree(
        EDITORS / "vscode", folder, ignore=shutil.ignore_patterns("node_modules", "out", "protocol")
    )
    (folder / "node_modules").symlink_to(Path(compiler).parent.parent.parent)
    run(SCRIPT, "generate-ts", "--out", "src/protocol", cwd=folder, environment=os.environ)
    run(node, compiler, "-p", ".", cwd=folder, environment=os.environ)
    return node, folder


async def test_the_vscode_extension_holds_a_turn_with_approvals(
    world: MakeWorld, extension: tuple[str, Path]
) -> None:
    """VS Code itself is not there: the module `vscode` is a stand-in."""
    node, folder = extension
    async with world(*replies(), config=ASKS, files={"greet.txt": "hello\n"}) as w:
        check(w, await play(w, node, str(folder / "test" / "turns.js"), str(folder / "out")))
