"""`app-server demo`, as it is shown to people: what it prints, what its status says, what it leaves behind."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = str(Path(sys.executable).with_name("app-server"))


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


@pytest.fixture
def folder() -> Iterator[Path]:
    """For what is temporary; with a short path, which is what people see."""
    with tempfile.TemporaryDirectory(prefix="demo-") as path:
        yield Path(path)


def test_everything_happens(folder: Path) -> None:
    done = demo(folder, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for shown in (
        "failed: expected 'Hello, World!'",  # the command's output
        '+echo "Hello, $1!"',  # the patch
        "The sandbox stopped me",
        "since the thread began",  # the tokens
        "rollout-",
        "thread/resume",
        "passed: Hello, World!",  # after the second server took over
    ):
        assert shown in done.stdout
    assert "\x1b" not in done.stdout
    assert list(folder.iterdir()) == []


def test_nothing_is_approved_where_nobody_can_be_asked(folder: Path) -> None:
    done = demo(folder)
    assert done.returncode == 1
    assert "no terminal to ask at" in done.stdout
    assert "✗" not in done.stdout
    assert "passed: Hello, World!" not in done.stdout


def test_without_git_it_says_so(folder: Path) -> None:
    done = demo(folder, "--yes", PATH=str(folder))
    assert done.returncode == 1
    assert "git is not installed" in done.stdout
