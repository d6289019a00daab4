"""Small disks, and folders in which no user may write, root included."""

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
    with _mounted(path, "-t", "tmpfs", "-o", f"size={size}", "none"):
        yield


@contextlib.contextmanager
def mounted_on_itself(path: Path) -> Iterator[None]:
    with _mounted(path, "--bind", str(path)):
        yield


@contextlib.contextmanager
def _mounted(path: Path, *what: str) -> Iterator[None]:
    """Mount a file system there while the block runs. The test is skipped if mounting is not allowed."""
    if subprocess.run(("mount", *what, str(path)), check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(("umount", "-l", str(path)), check=True)


def protect(path: Path) -> None:
    """Forbid every user to write there, root included."""
    subprocess.run(("mount", "-o", "remount,ro,bind", str(path)), check=True)
