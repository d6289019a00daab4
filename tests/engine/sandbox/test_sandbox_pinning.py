"""A protected path that is removed during the confinement of a command causes no error; any other failure does."""

import os
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts of Linux")


@pytest.mark.parametrize("removed", [True, False])
def test_a_path_that_is_removed_while_it_is_mounted(
    removed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app_server.engine.sandbox.launcher import namespaces  # noqa: PLC0415  Linux only

    place = tmp_path / "repository"
    place.mkdir()

    def open_tree(path: bytes, flags: int, at: int) -> int:
        if removed:
            place.rmdir()
        raise FileNotFoundError(2, "open_tree: No such file or directory")

    monkeypatch.setattr(namespaces, "open_tree", open_tree)
    open_before = len(os.listdir("/proc/self/fd"))
    if removed:
        namespaces.pin(os.fsencode(place), protected=True)
    else:
        with pytest.raises(FileNotFoundError):
            namespaces.pin(os.fsencode(place), protected=True)
    assert len(os.listdir("/proc/self/fd")) == open_before
