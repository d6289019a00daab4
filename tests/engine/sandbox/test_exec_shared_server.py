"""The ways in which a confined command could reach a shared server, take its place, or keep clients from it.

They are closed under every policy, for every place of the socket. They are open without a sandbox; otherwise the tests
would test nothing.
"""

import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app_server.engine.support.filelock import hold
from app_server.engine.support.socket_paths import SocketPaths, place_of_home
from app_server.server.daemon.binding import BoundSocket, hold_place
from app_server_protocol.policy import DangerFullAccess, ReadOnly, SandboxPolicy, WorkspaceWrite
from tests.engine.sandbox.conftest import Bench, a_bench, at_level

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Linux sandbox")

POLICIES: dict[str, SandboxPolicy] = {
    "read-only": ReadOnly(),
    "workspace-write": WorkspaceWrite(),
    "workspace-write with the network": WorkspaceWrite(network_access=True),
}

ROADS = """
import errno, fcntl, json, os, socket, struct, sys

place = json.loads(sys.argv[1])
real, folder = place["real"], place["folder"]

def connects(address, change=None):
    def go():
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            if change:
                os.chdir(change)
            s.connect(address)
            s.sendall(b"{}")
    return go

def by_link():
    os.symlink(real, "way")
    connects("way")()

def by_descriptor():
    connects(f"/proc/self/fd/{os.open(os.path.dirname(real), os.O_PATH)}/{os.path.basename(real)}")()

def by_inherited():
    for fd in range(3, 100):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                socket.socket(fileno=fd).accept()
                return
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return  # it can be listened on
    raise OSError("none")

def by_abstract():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\\0" + real)

def locks(path):
    def go():
        fd = os.open(path, os.O_RDWR)
        fcntl.fcntl(fd, getattr(fcntl, "F_OFD_SETLK", 37), struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    return go

def replaces(path):
    def go():
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path + "x")
            os.rename(path + "x", path)
            s.listen()
    return go

def reads(path):
    def go():
        with open(path) as file:
            file.read()
    return go

def appends(path):
    def go():
        with open(path, "a") as file:
            file.write("x")
    return go

def rename_control():
    if os.path.dirname(real) == folder:
        os.rename(folder + ".away", folder)
    os.rename(folder, folder + ".gone")

roads = {
    "connect": connects(real),
    "connect by the name of the home": connects(os.path.basename(place["socket"]), folder),
    "connect by the name of codex": connects(os.path.basename(place["reference"]), folder),
    "connect by /proc/self/root": connects("/proc/self/root" + real),
    "connect by /proc/PARENT/root": connects(f"/proc/{os.getppid()}/root" + real),
    "connect by a link": by_link,
    "connect by a descriptor": by_descriptor,
    "an inherited descriptor": by_inherited,
    "an abstract copy": by_abstract,
    "read the token": reads(folder + "/ws-token"),
    "list": lambda: os.listdir(folder) and None,
    "lock": locks(folder + "/startup.lock"),
    "write the log": appends(folder + "/app-server.log"),
    "write what people read": appends(folder + "/server.json"),
    "open to others": lambda: os.chmod(folder, 0o755),
    "open the socket to others": lambda: os.chmod(real, 0o666),
    "put a socket in its place": replaces(real),
    "remove it": lambda: os.unlink(real),
    "rename its folder": lambda: os.rename(os.path.dirname(real), os.path.dirname(real) + ".away"),
    "rename the folder of the home": rename_control,
}
start = os.getcwd()
for name in roads:
    os.chdir(start)
    try:
        roads[name]()
    except OSError as error:
        print(name, error, file=sys.stderr)
    else:
        print(name)
print(len(roads))
"""


@dataclass
class Served:
    """Socket at the place of a home that replaces a server."""

    bench: Bench
    place: SocketPaths
    held: BoundSocket
    listening: socket.socket

    @property
    def real(self) -> str:
        return os.path.realpath(self.place.socket)

    def state(self) -> list[tuple[str, int, int]]:
        """Return names, permissions and identities of the folder, the socket and all files beside it."""
        folders = {self.place.folder, os.path.dirname(self.real)}
        found = [*folders, *(os.path.join(each, name) for each in folders for name in os.listdir(each))]
        return sorted((path, os.lstat(path).st_mode, os.lstat(path).st_ino) for path in found)

    async def open_roads(self, policy: SandboxPolicy) -> list[str]:
        place = {
            "socket": self.place.socket,
            "reference": self.place.reference,
            "folder": self.place.folder,
            "real": self.real,
        }
        argv = (sys.executable, "-I", "-c", ROADS, json.dumps(place))
        spec = self.bench.spec(*argv, policy=policy, timeout_ms=60_000)
        result = await self.bench.runner.run(spec, lambda *_: None)
        assert result.exit_code == 0, result.stderr
        return result.stdout.decode().splitlines()

    def nobody_came(self) -> bool:
        try:
            self.listening.accept()[0].close()
        except BlockingIOError:
            return True
        return False


@pytest.fixture(params=["in the home", "in the runtime folder"])
async def served(request: pytest.FixtureRequest, short_folder: Path) -> AsyncIterator[Served]:
    is_long = request.param == "in the runtime folder"
    home = short_folder / ("h" * 150 if is_long else "home")
    (short_folder / "run").mkdir()
    async with a_bench(short_folder, home) as bench:
        await at_level(bench, "full")
        place = place_of_home(str(home))
        held = hold_place(place)
        listening = held.listen({"XDG_RUNTIME_DIR": str(short_folder / "run")})
        held.describe("{}")
        Path(place.log).write_text("log")
        (Path(place.folder) / "ws-token").write_text("sentinel")
        os.close(hold(place.startup_lock))
        os.set_inheritable(listening.fileno(), True)
        try:
            yield Served(bench, place, held, listening)
        finally:
            listening.close()
            held.unlink()
            held.release()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
async def test_no_road_of_a_confined_command_leads_to_a_shared_server(
    served: Served, policy: SandboxPolicy
) -> None:
    before = served.state()
    assert len(await served.open_roads(policy)) == 1
    assert served.nobody_came()
    assert served.state() == before
    assert Path(served.place.log).read_text() == "log"


BY_THEMSELVES = {"an abstract copy", "an inherited descriptor"}
"""Ways that the server closes by itself: it makes no abstract socket, and gives a command no descriptor."""


async def test_the_roads_are_open_without_a_sandbox(served: Served) -> None:
    """The ways are tried in an order in which each of them still exists."""
    *opened, count = await served.open_roads(DangerFullAccess())
    assert not served.nobody_came()
    assert len(opened) == int(count) - len(BY_THEMSELVES)
    assert BY_THEMSELVES.isdisjoint(opened)
