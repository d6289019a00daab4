"""The plugins of `editors/` in their hosts: a turn with two approvals, one that is interrupted, the thread again."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import anyio.to_thread
import pytest

from protocol.base import Json
from tests.support.scripted_model import Hold, begins_to_say, patches, reply, says, script, word
from tests.support.world import SCRIPT, MakeWorld, World
from tests.surroundings.npm import npm_packages

pytestmark = [pytest.mark.anyio, pytest.mark.process]

EDITORS = Path(__file__).parent.parent.parent / "editors"
ASKS: Json = {"approval_policy": "untrusted"}
PATCH = "*** Begin Patch\n*** Update File: greet.txt\n@@\n-hello\n+good day\n*** Add File: new.txt\n+new\n*** End Patch"
PATIENCE = 120.0


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


async def run(w: World, *command: str, **more: str) -> None:
    def wait() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**w.environment, **more},
            cwd=w.workspace,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    done = await anyio.to_thread.run_sync(wait)
    assert done.returncode == 0, done.stdout + done.stderr


async def play(w: World, *command: str) -> Json:
    """What the plugin's own test has seen."""
    result = w.root / "result.json"
    await run(w, *command, APP_SERVER=SCRIPT, RESULT=str(result))
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


async def test_the_vscode_extension_compiles_and_holds_a_turn_with_approvals(
    world: MakeWorld, pytestconfig: pytest.Config
) -> None:
    """VS Code itself is not there: the module `vscode` is a stand-in."""
    node, (compiler,) = npm_packages(pytestconfig, "vscode-extension", NPM_PACKAGES, ["typescript/bin/tsc"])
    packages = Path(compiler).parent.parent.parent
    async with world(*replies(), config=ASKS, files={"greet.txt": "hello\n"}) as w:
        extension = w.root / "extension"
        shutil.copytree(
            EDITORS / "vscode", extension, ignore=shutil.ignore_patterns("node_modules", "out", "protocol")
        )
        (extension / "node_modules").symlink_to(packages)
        await run(w, SCRIPT, "generate-ts", "--out", str(extension / "src" / "protocol"))
        await run(w, node, compiler, "-p", str(extension))
        test = extension / "test" / "turns.js"
        check(w, await play(w, node, str(test), str(extension / "out")))
