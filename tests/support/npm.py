"""npm packages that tests run, installed once for all workers and kept in pytest's cache."""

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def npm_packages(
    config: pytest.Config, name: str, packages: Sequence[str], scripts: Sequence[str], *options: str
) -> tuple[str, tuple[str, ...]]:
    """Return the node program, and the paths of `scripts` below `node_modules`. The test is skipped if there is no npm,
    or no registry. `name` is the folder in the cache; `options` are additional options of `npm install`.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("there is no npm")
    folder = Path(config.cache.mkdir(name))
    found = [folder / "node_modules" / script for script in scripts]
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may install it
        complete = folder / "complete"  # an interrupted installation has some of the files
        if not complete.exists() or not all(script.exists() for script in found):
            quiet = ("--silent", "--no-audit", "--no-fund")
            command = [npm, "install", *quiet, *options, "--prefix", str(folder), *packages]
            done = subprocess.run(command, capture_output=True, timeout=180, check=False)
            if done.returncode != 0:
                pytest.skip("the npm registry does not answer")
            complete.touch()
    return node, tuple(map(str, found))
