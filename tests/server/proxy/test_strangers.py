"""The receiver of a client's environment: a listener in a sandbox does not get it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.engine.support.socket_paths import named_place
from app_server.server.proxy.connect import ProxyRefused, connect
from app_server.server.proxy.relay import ENDED, Relay

LISTENS = """
import ctypes, socket, sys
if sys.argv[2] != "beside" and ctypes.CDLL(None).unshare(0x10000000):
    sys.exit("no user namespaces")
if sys.argv[2] == "guarded":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="user namespaces")
@pytest.mark.parametrize("how", ["sandboxed", "guarded"])
def test_a_listener_in_a_sandbox_is_told_nothing(short_folder: Path, how: str) -> None:
    path = str(short_folder / "s")
    # It needs a process of its own: a namespace holds for everything that runs in it.
    command = (sys.executable, "-c", LISTENS, path, how)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        assert listener.stdin is not None
        assert listener.stdout is not None
        if listener.stdout.readline() != b"\n":
            pytest.skip("no user namespaces")
        with pytest.raises(ProxyRefused, match="runs in a sandbox"):
            connect(named_place(path))
        listener.stdin.close()


@pytest.mark.skipif(sys.platform != "linux", reason="user namespaces")
def test_a_listener_beside_is_told(short_folder: Path) -> None:
    path = str(short_folder / "s")
    command = (sys.executable, "-c", LISTENS, path, "beside")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        assert listener.stdin is not None
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"\n"
        connect(named_place(path)).close()
        listener.stdin.close()


def test_a_proxy_whose_client_has_left_does_not_wait_for_a_server_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits neither after everything was sent, nor if the server accepts no more bytes."""
    monkeypatch.setattr("app_server.server.proxy.relay.LEAVES_WITHIN", 0.2)
    for said in (b"{}\n", b"x" * (8 << 20)):
        ours, theirs = socket.socketpair()
        stdin, client = socket.socketpair()
        with ours, theirs, stdin, client, open(os.devnull, "wb") as out:
            ours.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(said))
            client.setblocking(False)
            client.send(said)
            client.close()
            assert Relay(ours, stdin.fileno(), out.fileno()).run() == ENDED
