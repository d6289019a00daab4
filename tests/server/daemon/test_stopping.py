"""`app-server daemon` waiting for a shared server that was told to end."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from app_server.server.daemon import daemon_command
from app_server.server.daemon.daemon_command import StoppingServer
from app_server.server.proxy.connect import ProxyRefused

HOLDS = "import socket, sys, time; s = socket.socket(fileno=int(sys.argv[1])); s.send(b'x'); time.sleep(60)"


@pytest.fixture
def ours() -> Iterator[socket.socket]:
    """Yield one end of a connection. A process that does not end by itself holds the other end."""
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    number = str(theirs.fileno())
    with subprocess.Popen([sys.executable, "-c", HOLDS, number], pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        PIDS[mine] = process.pid
        yield mine
        process.kill()
    mine.close()


PIDS: dict[socket.socket, int] = {}


def test_the_end_of_the_process_is_noticed(ours: socket.socket) -> None:
    server = StoppingServer(ours, {"pid": PIDS[ours], "within": 60})
    assert not server.wait(0.2)
    os.kill(PIDS[ours], 9)
    assert server.wait()


def test_a_server_that_hangs_is_named_after_its_time_and_killed(
    ours: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = StoppingServer(ours, {"pid": PIDS[ours], "within": 0.1 - daemon_command.GRACE})
    assert not server.wait()
    assert f"(pid {PIDS[ours]}) has given up its place, and has not ended within 0.1 s" in server.hangs()
    server.kill()
    assert server.wait()


def test_nothing_is_killed_that_has_ended_or_is_not_known(
    ours: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    with pytest.raises(ProxyRefused, match="has not ended"):
        StoppingServer(ours, {}).kill()
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    theirs.close()
    StoppingServer(mine, {"pid": PIDS[ours]}).kill()
    mine.close()
    assert killed == []
