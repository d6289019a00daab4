"""The view of the server's home that commands get."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("mounts of Linux", allow_module_level=True)

from app_server.core.sandbox.confine import home


def test_a_home_that_another_folder_replaces_meanwhile_is_shown_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[int] = []

    def replaced_once(path: bytes, secrets: list[bytes], folder: int) -> Any:
        folders.append(folder)
        if len(folders) == 1:
            raise OSError(errno.EINVAL, "no mount")
        return folder

    monkeypatch.setattr(home, "_show", replaced_once)
    shown: Any = home.show(os.fsencode(tmp_path), [])
    assert len(folders) == 2
    os.close(shown)  # the last one is kept


def test_a_home_that_is_replaced_all_the_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(path: bytes, secrets: list[bytes], folder: int) -> Any:
        raise OSError(errno.EINVAL, "no mount")

    monkeypatch.setattr(home, "_show", replaced)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="again and again"):
        home.show(os.fsencode(tmp_path), [])
    assert len(os.listdir("/proc/self/fd")) == before
