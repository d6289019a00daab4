"""Completion in real shells: what Tab offers after the shell has read the script of `app-server completion`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.program import BIN, SCRIPT
from tests.support.terminal import Terminal

pytestmark = pytest.mark.process

OFFERED = [
    ("app-server ex", ["exec"]),
    ("app-server login s", ["status"]),
    ("app-server help gen", ["generate-json-schema", "generate-ts"]),
    ("app-server exec --output", ["--output-last-message", "--output-schema"]),
    ("app-server exec -s r", ["read-only"]),
    ("app-server --enable view", ["view_image_tool"]),
    ("app-server exec -C fold", ["folder"]),
]


SCRIPTS = {"bash": "complete.bash", "zsh": "zfunc/_app-server", "fish": "complete.fish"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a script for each shell, a file and a folder."""
    root = tmp_path_factory.mktemp("completion")
    for folder in ("folder", "zfunc"):
        (root / folder).mkdir()
    (root / "folded.txt").touch()
    for shell, script in SCRIPTS.items():
        printed = subprocess.run((SCRIPT, "completion", shell), capture_output=True, text=True, check=True)
        (root / script).write_text(printed.stdout)
    return root


def offered(shell: str, script: str, place: Path) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(place)}
    done = subprocess.run(
        (shell, "-c", script), cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return sorted(line.split("\t")[0].rstrip("/") for line in done.stdout.splitlines())


@pytest.mark.parametrize(("line", "expected"), OFFERED)
def test_bash_completes(line: str, expected: list[str], place: Path) -> None:
    script = f"""
source complete.bash
COMP_LINE={line!r} COMP_POINT={len(line)} COMP_WORDS=({line}) COMP_CWORD={len(line.split()) - 1}
compopt() {{ :; }}
_shtab_app_server app-server "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert offered("bash", script, place) == expected


@pytest.mark.parametrize(("line", "expected"), OFFERED)
def test_fish_completes(line: str, expected: list[str], place: Path) -> None:
    assert offered("fish", f"source complete.fish; complete -C '{line}'", place) == expected


def test_zsh_completes(place: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("there is no zsh")
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(place), "PS1": "> "}
    with Terminal(columns=100).start(("zsh", "-f"), environment=environment, cwd=place) as terminal:
        terminal.wait_for(">")
        terminal.say("PS1='ready> '; fpath=(zfunc $fpath); autoload -U compinit; compinit -D -u")
        terminal.wait_for("\nready>")
        for typed, expected in (
            ("app-server ex", "ready> app-server exec"),
            ("-s re", "app-server exec -s read-only"),
            ("-C fold", "-s read-only -C folder/"),
        ):
            terminal.press(f"{typed}\t")
            terminal.wait_for(expected)
