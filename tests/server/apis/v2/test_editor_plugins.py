"""The plugins of `editors/` in their hosts: a turn with two approvals, an interrupted one, the thread resumed, a failed
turn; and the manifests that install them.
"""

import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from app_server_protocol.encoding import Json
from tests.support.npm import npm_packages
from tests.support.program import SCRIPT
from tests.support.scripted_model import Hold, begins_to_say, failure, patches, reply, says, script, word
from tests.support.shared import shared_by_wish
from tests.support.world import MakeWorld, World, worlds_in

pytestmark = [pytest.mark.process, pytest.mark.integration]

EDITORS = Path(__file__).parents[4] / "editors"
ASKS: Json = {"approval_policy": "untrusted"}
PATCH = "*** Begin Patch\n*** Update File: greet.txt\n@@\n-hello\n+good day\n*** Add File: new.txt\n+new\n*** End Patch"
PATIENCE = 300.0


LINE_ENDS = ("\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029")
IMITATED = "The reason that is given:"
"""Line of the plugins' questions, which the command imitates after each kind of line end."""
COMMAND = "echo made > made.txt; : '" + "".join(f"{end}{IMITATED}" for end in LINE_ENDS) + "'"


def replies() -> tuple[Json, ...]:
    look = reply(begins_to_say(), word("I "), word("look."), says("I look."), script(COMMAND, "c1"))
    half = reply(begins_to_say(), word("half"), Hold())
    failed = failure(400, {"error": {"message": "no more credit"}})
    return look, reply(patches(PATCH, "c2")), reply(says("All done.", "msg-2")), half, failed


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


async def play(w: World, *command: str, shared: bool = False) -> Json:
    """Return what the plugin's own test has seen. With `shared` its command is the proxy of a server that others may
    use, too.
    """
    result = w.root / "result.json"
    async with shared_by_wish(w.environment) if shared else nullcontext(w.environment) as given:
        environment = {**given, "APP_SERVER": SCRIPT, "RESULT": str(result)}
        await anyio.to_thread.run_sync(partial(run, *command, cwd=w.workspace, environment=environment))
    return json.loads(result.read_text())


def check(w: World, seen: Json) -> None:
    assert (w.workspace / "made.txt").read_text() == "made\n"
    assert (w.workspace / "greet.txt").read_text() == "good day\n"
    assert "-hello" in seen["diff"]
    assert "+good day" in seen["diff"]
    assert "+new" in seen["diff"]
    imitations = [line for line in seen["live"].splitlines() if IMITATED in line]
    assert len(imitations) >= 2, "in the command, and in the question about it"
    assert [line for line in imitations if not line.startswith(("│ ", "$ "))] == []
    question = seen["live"][seen["live"].index("Run this command?") :]
    behind_bar = question.splitlines()[1]
    assert behind_bar.startswith("│ "), "the question has the command"
    assert "echo made > made.txt; : '" in behind_bar
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
    assert seen["offered"].endswith("please begin")
    assert w.model.requests[-1].texts() == ["please begin", "and now?", "once more"]


@pytest.mark.parametrize("shared", [False, True])
async def test_the_neovim_plugin_holds_a_turn_with_approvals(world: MakeWorld, shared: bool) -> None:
    nvim, folder = program("nvim"), EDITORS / "nvim"
    async with world(*replies(), config=ASKS, files={"greet.txt": "hello\n"}) as w:
        runs = (nvim, "--headless", "-u", "NONE", "-i", "NONE", "-n", "--cmd", f"set runtimepath^={folder}")
        plugin, test = folder / "plugin" / "app_server.lua", folder / "test" / "turns.lua"
        seen = await play(w, *runs, "-c", f"luafile {plugin}", "-c", f"luafile {test}", shared=shared)
        check(w, seen)


@pytest.mark.parametrize("shared", [False, True])
async def test_the_emacs_package_holds_a_turn_with_approvals(world: MakeWorld, shared: bool) -> None:
    emacs, folder = program("emacs"), EDITORS / "emacs"
    async with world(*replies(), config=ASKS, files={"greet.txt": "hello\n"}) as w:
        test = folder / "test" / "turns.el"
        words = ("-Q", "--batch", "-L", str(folder), "-l", "app-server", "-l", str(test))
        seen = await play(w, emacs, *words, shared=shared)
        check(w, seen)


NPM_PACKAGES = ("typescript@5.9.3", "@types/node@20.19.0", "@types/vscode@1.80.0")


def copied_extension(into: Path) -> Path:
    ignored = shutil.ignore_patterns("node_modules", "out", "protocol")
    return shutil.copytree(EDITORS / "vscode", into / "extension", ignore=ignored)


@pytest.fixture
def extension(tmp_path: Path, pytestconfig: pytest.Config) -> tuple[str, Path]:
    """Return the node program, and the compiled extension for VS Code."""
    node, (compiler,) = npm_packages(pytestconfig, "vscode-extension", NPM_PACKAGES, ["typescript/bin/tsc"])
    folder = copied_extension(tmp_path)
    (folder / "node_modules").symlink_to(Path(compiler).parent.parent.parent)
    run(SCRIPT, "generate-ts", "--out", "src/protocol", cwd=folder, environment=os.environ)
    run(node, compiler, "-p", ".", cwd=folder, environment=os.environ)
    return node, folder


async def test_the_vscode_extension_holds_a_turn_with_approvals(
    extension: tuple[str, Path], tmp_path: Path
) -> None:
    """VS Code itself is missing: the module `vscode` is a stand-in. Compiling the extension takes longer than using it,
    so one test uses both kinds of server.
    """
    node, folder = extension
    words = node, str(folder / "test" / "turns.js"), str(folder / "out")
    for kind, shared in (("own", False), ("shared", True)):
        world = worlds_in(tmp_path / kind)
        async with world(*replies(), config=ASKS, files={"greet.txt": "hello\n"}) as w:
            check(w, await play(w, *words, shared=shared))


def rows_of(text: str) -> list[tuple[str, str]]:
    """Return the actions of a plugin and their keys, from the table of its README."""
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [(what.strip(), how.strip()) for what, how in cells]


def readme(name: str) -> list[tuple[str, str]]:
    return rows_of((EDITORS / name / "README.md").read_text(encoding="utf-8"))


def test_what_the_plugins_do_is_the_same_table() -> None:
    does = [[what for what, _ in readme(name)] for name in ("nvim", "emacs", "vscode")]
    assert len(does[0]) == 10
    assert does[0] == does[1] == does[2]


def keys_of(name: str) -> set[str]:
    """Return the keys and commands in code marks of a README's table."""
    return {key for _, how in readme(name) for key in re.findall(r"`([^`]+)`", how)}


async def test_the_help_of_neovim_has_every_command_and_key(tmp_path: Path) -> None:
    nvim, folder = program("nvim"), tmp_path / "nvim"
    shutil.copytree(EDITORS / "nvim", folder)
    shown = tmp_path / "help.txt"
    keys = ["helptags doc", "help app-server", f"write! {shown}", "help :AppServerResume", "qall!"]
    words = [word for key in keys for word in ("-c", key)]
    runs = (nvim, "--headless", "-u", "NONE", "-i", "NONE", "-n", "--cmd", f"set runtimepath^={folder}")
    run(*runs, *words, cwd=folder, environment=os.environ)
    text = shown.read_text(encoding="utf-8")
    for key in keys_of("nvim"):
        command = key.split()[0]
        assert re.search(rf"^{re.escape(command)}\s", text, re.MULTILINE), key


def test_the_rock_has_every_module_of_the_neovim_plugin() -> None:
    folder = EDITORS / "nvim"
    rock = (folder / "app-server.nvim-scm-1.rockspec").read_text(encoding="utf-8")
    there = {str(path.relative_to(folder)) for path in folder.glob("lua/**/*.lua")}
    assert set(re.findall(r'= "(lua/[^"]+)"', rock)) == there


async def test_the_emacs_package_installs_without_a_warning(tmp_path: Path) -> None:
    emacs = program("emacs")
    script = f"""
(setq package-user-dir "{tmp_path}/elpa" byte-compile-error-on-warn t)
(require 'package)
(package-initialize)
(package-install-file "{EDITORS}/emacs/app-server.el")
(require 'app-server)
(unless (string-prefix-p package-user-dir (locate-library "app-server")) (error "Not installed"))
(unless (string-suffix-p ".elc" (locate-library "app-server")) (error "Not compiled"))
(require 'checkdoc)
(setq checkdoc-verb-check-experimental-flag nil)
(let ((checkdoc-create-error-function (lambda (text start &rest _) (error "Checkdoc: %s at %s" text start))))
  (checkdoc-file "{EDITORS}/emacs/app-server.el"))
"""
    (tmp_path / "install.el").write_text(script, encoding="utf-8")
    home = {**os.environ, "HOME": str(tmp_path)}
    run(emacs, "-Q", "--batch", "-l", str(tmp_path / "install.el"), cwd=tmp_path, environment=home)


def test_the_manual_of_emacs_has_every_command_and_key(tmp_path: Path) -> None:
    makeinfo, manual = program("makeinfo"), tmp_path / "manual.txt"
    source = EDITORS / "emacs" / "app-server.texi"
    run(makeinfo, "--plaintext", "-o", str(manual), str(source), cwd=tmp_path, environment=os.environ)
    text = manual.read_text(encoding="utf-8")
    for key in keys_of("emacs"):
        assert key.strip("()").removeprefix("M-x ").split(" ID")[0] in text, key


async def test_the_vscode_package_has_what_runs_and_no_more(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    folder = copied_extension(tmp_path)
    (folder / "out" / "protocol").mkdir(parents=True)
    sources = [source.stem for source in (folder / "src").glob("*.ts")]
    for name in (*sources, "protocol/Thread"):  # compiling takes longer than the rest of the test
        for end in (".js", ".js.map"):
            (folder / "out" / f"{name}{end}").touch()
    node, (vsce,) = npm_packages(pytestconfig, "vsce", ["@vscode/vsce@3.6.0"], ["@vscode/vsce/vsce"])
    manifest = json.loads((folder / "package.json").read_text())
    del manifest["scripts"]["vscode:prepublish"]  # this script compiles
    (folder / "package.json").write_text(json.dumps(manifest))
    options = (
        (EDITORS / "vscode" / "package.json").read_text().partition("vsce package ")[2].partition('"')[0]
    )
    run(node, vsce, "package", *options.split(), "-o", "made.vsix", cwd=folder, environment=os.environ)
    with zipfile.ZipFile(folder / "made.vsix") as made:
        names = {name for name in made.namelist() if name.startswith("extension/")}
    scripts = {f"extension/out/{name}.js" for name in ("connection", "extension", "thread")}
    assert names == {"extension/package.json", "extension/readme.md", *scripts}
    launch = json.loads((EDITORS / "vscode" / ".vscode" / "launch.json").read_text())
    assert launch["configurations"][0]["preLaunchTask"] == "npm: compile"
    bound = {each["key"] for each in manifest["contributes"]["keybindings"]}
    assert bound == keys_of("vscode") - {"appServer.resume"}
