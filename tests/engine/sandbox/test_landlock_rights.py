"""Landlock rights by the version of the kernel, and what a process can do that is denied them and nothing else."""

import ast
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from app_server.engine.sandbox.exec.landlock_rights import LATER_RIGHTS, landlock_abi, landlock_rights
from app_server.engine.support.helpers import IMPORT_FOLDERS

ABI = landlock_abi()
RESOLVE_UNIX, TCP, UDP, SCOPES = 1 << 16, 0b0011, 0b1100, 0b11

needs_landlock = pytest.mark.skipif(ABI < 1, reason="no Landlock here")


@needs_landlock
@pytest.mark.parametrize(
    ("version", "net", "scoped", "size", "unix"),
    [
        (1, 0, 0, 8, 0),
        (3, 0, 0, 8, 0),
        (4, TCP, 0, 16, 0),
        (6, TCP, SCOPES, 24, 0),
        (8, TCP, SCOPES, 24, 0),
        (9, TCP, SCOPES, 24, RESOLVE_UNIX),
        (10, TCP | UDP, SCOPES, 24, RESOLVE_UNIX),
        (11, TCP | UDP, SCOPES, 24, RESOLVE_UNIX),
    ],
)
def test_a_kernel_is_asked_for_the_rights_that_its_version_has(
    version: int, net: int, scoped: int, size: int, unix: int
) -> None:
    for reading in (False, True):
        rights = landlock_rights(network=False, version=version, reading=reading)
        assert rights is not None
        assert (rights.net, rights.scoped, rights.size) == (net, scoped, size)
        assert rights.fs & RESOLVE_UNIX == unix
        online = landlock_rights(network=True, version=version, reading=reading)
        assert online is not None
        assert (online.net, online.scoped, online.fs) == (0, scoped, rights.fs)


@needs_landlock
def test_no_devices_no_sockets_and_nothing_that_is_not_denied_are_granted() -> None:
    for reading in (False, True):
        rights = landlock_rights(network=False, version=10, reading=reading)
        assert rights is not None
        assert rights.grant & ~rights.fs == rights.device & ~rights.fs == rights.read & ~rights.fs == 0
        assert not rights.grant & (1 << 6 | 1 << 11 | 1 << 15)
        assert not (rights.grant | rights.device | rights.read) & RESOLVE_UNIX


def test_a_kernel_without_landlock_has_no_rights() -> None:
    assert landlock_rights(network=False, version=0) is None


def test_the_rights_of_the_table_do_not_overlap() -> None:
    bits = [(right.member, 1 << n) for right in LATER_RIGHTS for n in range(64) if right.bits >> n & 1]
    assert len(bits) == len(set(bits))
    if ABI:
        package = landlock_rights(network=True, version=1, reading=True)
        assert package is not None
        assert not any(package.fs & right.bits for right in LATER_RIGHTS if right.member == "fs")


SCRIPT = """\
import ast, errno, os, socket, sys
sys.path += ast.literal_eval(sys.argv[1])
from app_server.engine.sandbox.launcher.enforce import apply_landlock, forgo_new_privileges
rights, path, name, parent = ast.literal_eval(sys.argv[2]), sys.argv[3], sys.argv[4], os.getppid()
tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
def unix(place):
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(place)
def internet(kind, act):
    with socket.socket(socket.AF_INET, kind) as made:
        act(made)
ACTS = {
    "connect_tcp": lambda: socket.create_connection(tcp.getsockname()).close(),
    "bind_tcp": lambda: internet(socket.SOCK_STREAM, lambda made: made.bind(("127.0.0.1", 0))),
    "abstract": lambda: unix("\\0" + name),
    "signal": lambda: os.kill(parent, 0),
    "path": lambda: unix(path),
    "bind_udp": lambda: internet(socket.SOCK_DGRAM, lambda made: made.bind(("127.0.0.1", 0))),
    "send_udp": lambda: internet(socket.SOCK_DGRAM, lambda made: made.sendto(b"x", udp.getsockname())),
    "connect_udp": lambda: internet(socket.SOCK_DGRAM, lambda made: made.connect(udp.getsockname())),
}
def results():
    found = {}
    for each, act in ACTS.items():
        try:
            act()
            found[each] = ""
        except OSError as error:
            found[each] = errno.errorcode[error.errno]
    return found
before = results()
forgo_new_privileges()
apply_landlock(rights, [], [], [])
print((before, results()))
"""
"""Tries each action before and after Landlock is applied, without the other layers."""

DENIED = {
    "connect_tcp": (4, "EACCES"),
    "bind_tcp": (4, "EACCES"),
    "abstract": (6, "EPERM"),
    "signal": (6, "EPERM"),
    "path": (9, "EACCES"),
    "bind_udp": (10, "EACCES"),
    "send_udp": (10, "EACCES"),
    "connect_udp": (10, "EACCES"),
}
"""The first version of Landlock that denies each action, and its error."""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, str]]:
    """Return the result of each action before and after this kernel's rights are denied."""
    rights = landlock_rights(network=False, version=ABI)
    path = str(tmp_path_factory.mktemp("landlock") / "s")
    name = f"landlock-{Path(path).parent.name}-{id(path)}"
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract:
        for each, place in ((named, path), (abstract, f"\0{name}")):
            each.bind(place)
            each.listen(8)
        folders, denied = repr(list(IMPORT_FOLDERS)), repr(msgspec.to_builtins(rights))
        command = [sys.executable, "-I", "-S", "-c", SCRIPT, folders, denied, path, name]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stderr == ""
    before, after = ast.literal_eval(done.stdout)
    return before, after


@needs_landlock
@pytest.mark.parametrize("action", DENIED)
def test_landlock_alone_denies_what_its_version_can(
    action: str, tried: tuple[dict[str, str], dict[str, str]]
) -> None:
    before, after = tried
    version, error = DENIED[action]
    assert before[action] == ""
    if version > ABI:
        assert after[action] == ""
        pytest.skip(f"the kernel has no right for it before Landlock's ABI {version}")
    assert after[action] == error
