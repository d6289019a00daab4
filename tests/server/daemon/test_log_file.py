"""The log of a server without a watching process."""

import os
from pathlib import Path

import pytest

from app_server.server.daemon.daemon_process import LogFile

LINE = b"x" * 99 + b"\n"


@pytest.fixture
def fd(tmp_path: Path) -> int:
    return os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def test_a_full_file_is_kept_once_and_everything_goes_on_in_a_new_one(tmp_path: Path, fd: int) -> None:
    log = LogFile(str(tmp_path / "log"), most=1000, fd=fd)
    for _ in range(25):
        log.write(LINE)
    os.write(fd, b"a traceback\n")  # the same descriptor gets other output, too
    assert {path.name for path in tmp_path.iterdir()} == {"log", "log.old"}
    assert (tmp_path / "log.old").read_bytes() == LINE * 10
    assert (tmp_path / "log").read_bytes() == LINE * 5 + b"a traceback\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    os.close(fd)


def test_a_folder_that_is_gone_costs_no_line(tmp_path: Path, fd: int) -> None:
    log = LogFile(str(tmp_path / "none" / "log"), most=1000, fd=fd)
    for _ in range(25):
        assert log.write(LINE) == len(LINE)
    assert (tmp_path / "log").read_bytes() == LINE * 25
    os.close(fd)
