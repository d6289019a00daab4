"""A command that the server gave up before its start never begins."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from app_server.core.launcher import supervisor, wire


def request(path: Path) -> dict[str, Any]:
    return {
        "cwd": b"/",
        "exact_cwd": False,
        "env": {},
        "argv": [b"/bin/touch", bytes(path)],
        "tty": False,
        "background": True,
    }


@pytest.mark.parametrize("how", [socket.SHUT_WR, None])
def test_it_is_reported_as_killed(how: int | None, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    if how is None:
        ours.close()
    else:
        ours.shutdown(how)
    stdio = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]
    supervisor.supervise(
        request(tmp_path / "late"), [theirs.detach(), *stdio], supervisor.watch_children(), None, whole=False
    )
    assert not (tmp_path / "late").exists()
    if how is not None:
        with ours:
            assert ours.recv(100) == wire.pack(("exit", -9, True))


def test_nor_where_it_is_given_up_while_it_is_confined(tmp_path: Path) -> None:
    """Between fork and exec, the last moment at which anybody can look."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stdio = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]
        child = supervisor.start(
            request(tmp_path / "late"), stdio, lambda: ours.shutdown(socket.SHUT_WR), theirs.fileno()
        )
        _, status = os.waitpid(child, 0)
        for number in stdio:
            os.close(number)
    assert os.waitstatus_to_exitcode(status) == 137
    assert not (tmp_path / "late").exists()


def test_a_command_whose_server_is_alive_runs(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stdio = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]
        child = supervisor.start(request(tmp_path / "made"), stdio, lambda: None, theirs.fileno())
        _, status = os.waitpid(child, 0)
        for number in stdio:
            os.close(number)
    assert status == 0
    assert (tmp_path / "made").exists()
