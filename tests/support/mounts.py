"""Small disks, and folders in which nobody may write, root included."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root may mount")


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir(exist_ok=True, parents=True)
    done = subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)), check=False)
    if done.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield
    finally:
        subprocess.run(("umount", "-l", str(path)), check=True)


@contextlib.contextmanager
def mounted_on_itself(path: Path) -> Iterator[None]:
    done = subprocess.run(("mount", "--bind", str(path), str(path)), check=False)
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(("umount", "-l", str(path)), check=True)


def protect(path: Path) -> None:
    """Nobody writes there any more, root included."""
    subprocess.run(("mount", "-o", "remount,ro,bind", str(path)), check=True)
