"""The installed copy: an environment with the built wheel, its extras and nothing else. Tests run there what users run.

It is in the folder of the environment that runs the tests (`.venv/installed`), so each Python has its own. It is
created or updated before the first test that needs it. `TESTED_INSTALLATION` names another environment, which is tested
without changes.
"""

from __future__ import annotations

import base64
import csv
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "app_server": ROOT / "app_server",
    "app_server_protocol": ROOT / "protocol" / "app_server_protocol",
}
PROJECT = ROOT / "pyproject.toml"

GIVEN = os.environ.get("TESTED_INSTALLATION")
PREFIX = Path(GIVEN or Path(sys.prefix, "installed")).absolute()

EXTRAS = "chat,inspect,otel" + (",ray" if find_spec("ray") is not None else "")
"""Extras of the installed copy. Ray is large, so it is included only if the environment of the tests has it."""
PLAYS = (
    ("--version",),
    ("exec", "--demo", "hello"),
    ("completion", "bash"),
)
"""Command lines that have to work before any extra is installed: this finds a dependency that is not declared."""

COMPLETE = ".project"
"""File that contains the digest of the pyproject.toml for which everything was installed, and the extras."""


class NotInstalled(Exception):
    """The environment is not a copy of these sources, and could not be updated."""


def bring_up_to_date() -> None:
    """Install these sources if the copy differs from them. One of several processes installs, and the others wait.
    Raises NotInstalled.
    """
    with open(f"{PREFIX}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if GIVEN is None and difference(PREFIX) is not None:
            _install_wheel(PREFIX)
        if (reason := difference(PREFIX)) is not None:
            raise NotInstalled(reason)


def difference(prefix: Path) -> str | None:
    """Return how an environment differs from these sources; None if it does not differ. An editable installation of
    these sources counts as equal.
    """
    found = list(prefix.glob("lib/python*/site-packages/app_server_agent-*.dist-info"))
    if len(found) != 1:
        return f"{prefix} has no installed copy"
    origin = found[0] / "direct_url.json"
    if origin.exists() and json.loads(origin.read_bytes()) == {
        "dir_info": {"editable": True},
        "url": ROOT.as_uri(),
    }:
        return None
    if not _is_complete(prefix):
        return f"the copy in {prefix} was installed for another pyproject.toml"
    recorded, here = dict(_recorded(found[0] / "RECORD")), dict(_sources())
    different = {name for name, _ in recorded.items() ^ here.items()}
    return f"{min(different)} has changed since {prefix} was installed" if different else None


def _is_complete(prefix: Path) -> bool:
    try:
        return (prefix / COMPLETE).read_text(encoding="ascii") == _everything()
    except OSError:
        return False


def _everything() -> str:
    """Return the text that marks a complete installation."""
    return f"{digest_of(PROJECT)} {EXTRAS}"


def _recorded(record: Path) -> Iterator[tuple[str, str]]:
    """Yield the names of the installed files of our packages with their digests."""
    with record.open(encoding="utf-8", newline="") as lines:
        for name, digest, _ in csv.reader(lines):
            if name.split("/")[0] in PACKAGES and not name.endswith(".pyc"):
                yield name, digest


def _sources() -> Iterator[tuple[str, str]]:
    """Yield the names of files as the wheel has them, with the digests of their sources."""
    for package, folder in PACKAGES.items():
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{package}/{path.relative_to(folder).as_posix()}", digest_of(path)


def digest_of(path: Path) -> str:
    """Return a digest as RECORD has it."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _install_wheel(prefix: Path) -> None:
    """Build the wheel and install it. Dependencies are installed where pyproject.toml has changed."""
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        [wheel] = map(str, Path(folder).glob("*.whl"))
        if _is_complete(prefix):
            _install(prefix, "--no-deps", "--force-reinstall", wheel)
            return
        shutil.rmtree(prefix, ignore_errors=True)
        _run(sys.executable, "-m", "venv", "--without-pip", str(prefix))
        _install(prefix, wheel)
        _play(prefix)
        _install(prefix, f"{wheel}[{EXTRAS}]")
    (prefix / COMPLETE).write_text(_everything(), encoding="ascii")


def _install(prefix: Path, *words: str) -> None:
    python = str(prefix / "bin" / "python")
    _run(sys.executable, "-m", "pip", "--python", python, "--quiet", "install", *words)


def _play(prefix: Path) -> None:
    """Run the command lines that have to work without extras, in an empty home."""
    with tempfile.TemporaryDirectory() as folder:
        for words in PLAYS:
            _run(str(prefix / "bin" / "app-server"), *words, HOME=folder, CODEX_HOME=folder)


def _run(*command: str, **variables: str) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotInstalled(f"`{' '.join(command)}` failed with status {done.returncode}:\n{done.stdout}")
