"""The process at the other end of a socket."""

import ctypes
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.server.daemon.peer_credentials import (
    Peer,
    descends_from,
    is_from_own_work,
    is_own_work,
    mac_parent,
    mac_parent_of,
    mac_user,
    parent_of,
    peer_of,
)
from tests.support.pipes import PATIENCE

FAMILY = {30: 20, 20: 10, 10: 1, 40: 1, 50: 51, 51: 50}


@pytest.mark.parametrize(
    ("pid", "descends"), [(30, True), (20, True), (10, False), (40, False), (60, None), (50, None)]
)
def test_ancestors_are_followed_to_the_first(pid: int, descends: bool | None) -> None:
    """An ended process has no ancestors. A circle, which only reused process ids can make, has no first one."""
    assert descends_from(10, pid, FAMILY.get) is descends


def test_the_parent_of_a_process() -> None:
    assert parent_of(os.getpid()) == os.getppid()
    assert parent_of(1 << 22) is None


def test_this_user_and_this_process() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours) == Peer(os.geteuid(), os.getpid())
        assert not is_own_work(ours, os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_child_and_what_has_ended_are_found(tmp_path: Path, short_folder: Path) -> None:
    path = str(short_folder / "s")
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        listening.settimeout(PATIENCE)
        with subprocess.Popen([sys.executable, "-c", code, path]) as child:
            connection, _ = listening.accept()
            with connection:
                pid = peer_of(connection).pid
                assert pid == child.pid
                assert is_own_work(connection, pid)
                child.kill()
                child.wait()
                assert is_own_work(connection, pid)


HOLDS = """
import ctypes, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    if sys.argv[2] == "guarded":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    connection.sendall(b"x")
    connection.recv(1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("how", ["open", "guarded"])
def test_a_child_is_found_over_tcp(how: str) -> None:
    """This holds also for a process that hides its descriptors."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        port = listening.getsockname()[1]
        with subprocess.Popen([sys.executable, "-c", HOLDS, str(port), how]):
            connection, _ = listening.accept()
            with connection:
                connection.recv(1)
                assert is_from_own_work(connection)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_this_process_is_no_child_over_tcp() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        connection, _ = listening.accept()
        with connection:
            assert not is_from_own_work(connection)


def test_what_macos_says_is_read() -> None:
    assert mac_user(struct.pack("=2IH16I", 0, 501, 1, *([20] * 16))) == 501


def test_the_parent_that_macos_says_is_read() -> None:
    told = struct.pack("=4I16s8I", 77, 42, 77, 2, b"zsh", 0, *([501] * 6), 0)
    assert mac_parent(told) == 42
    assert mac_parent(told[:-1]) is None  # macOS sends this for no process
    assert mac_parent(b"") is None


def test_macos_is_asked_for_each_ancestor(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = {9: 8, 8: 7, 7: 1}

    class Processes:
        def proc_pidinfo(
            self, pid: int, kind: int, _: object, told: ctypes.Array[ctypes.c_char], size: int
        ) -> int:
            assert (kind, size) == (13, 64)
            if pid not in parents:
                return 0
            told.raw = struct.pack("=2I56x", pid, parents[pid])
            return size

    monkeypatch.setattr(ctypes, "CDLL", lambda path: Processes() if "libproc" in path else None)
    assert descends_from(7, 9, mac_parent_of)
    assert not descends_from(5, 9, mac_parent_of)
    assert descends_from(5, 6, mac_parent_of) is None
