"""Unix sockets of confined commands: they reach one another in the writable roots, and no process outside."""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from app_server.engine.sandbox.exec.command import ExecResult
from app_server.engine.sandbox.launcher import descendants
from app_server_protocol.policy import ReadOnly, SandboxPolicy, WorkspaceWrite
from app_server_protocol.values import replace
from tests.engine.sandbox.conftest import Bench, at_level

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Linux sandbox")

OFFLINE = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
ONLINE = WorkspaceWrite(network_access=True, exclude_slash_tmp=True, exclude_tmpdir_env_var=True)

SERVER = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, {kind})
s.bind({path!r} + '.new')
s.listen()
os.rename({path!r} + '.new', {path!r})
c = s.accept()[0]
print(c.recv(9).decode())
c.sendall(b'pong')
"""
CLIENT = """
import os, socket, sys, time
while not os.path.exists({path!r}):
    time.sleep(0.001)
s = socket.socket(socket.AF_UNIX, {kind})
s.connect({path!r})
s.sendall(b'ping')
print(s.recv(9).decode())
"""


@pytest.fixture
async def bench(bench: Bench) -> Bench:
    return await at_level(bench, "full")


@pytest.fixture
def witness() -> Iterator[list[socket.socket]]:
    """Yield listening sockets of a process outside the sandbox, which is this one."""
    made: list[socket.socket] = []
    yield made
    for one in made:
        one.close()


def listens(path: Path | str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(str(path))
    if kind != socket.SOCK_DGRAM:
        made.listen()
    made.setblocking(False)
    return made


def nobody_came(one: socket.socket) -> bool:
    try:
        if one.type == socket.SOCK_DGRAM:
            one.recv(10)
        else:
            one.accept()[0].close()
    except BlockingIOError:
        return True
    return False


async def python(bench: Bench, code: str, policy: SandboxPolicy = OFFLINE) -> ExecResult:
    spec = bench.spec(sys.executable, "-I", "-c", code, policy=policy, timeout_ms=60_000)
    return await bench.runner.run(spec, lambda *_: None)


def connecting(path: str, more: str = "") -> str:
    return f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.sendall(b'x'); {more}"


@pytest.mark.parametrize("policy", [OFFLINE, ONLINE])
@pytest.mark.parametrize("kind", [1, 5])
async def test_two_programs_of_one_command_talk(bench: Bench, policy: SandboxPolicy, kind: int) -> None:
    server, client = (text.format(path="a.sock", kind=kind) for text in (SERVER, CLIENT))
    script = f"import subprocess, sys\np = subprocess.Popen([sys.executable, '-Ic', {server!r}])\n"
    result = await python(bench, f"{script}exec({client!r})\nsys.exit(p.wait())", policy)
    assert (result.exit_code, sorted(result.stdout.split())) == (0, [b"ping", b"pong"]), result.stderr


@pytest.mark.parametrize("policy", [OFFLINE, ONLINE])
@pytest.mark.parametrize("folder", ["", "deep/er/", "{ws}/", "link/"])
async def test_two_commands_talk_through_a_socket_in_the_workspace(
    bench: Bench, policy: SandboxPolicy, folder: str
) -> None:
    (bench.ws / "deep" / "er").mkdir(parents=True)
    (bench.ws / "link").symlink_to(bench.ws / "deep")
    path = f"{folder.format(ws=bench.ws)}a.sock"
    results: dict[str, ExecResult] = {}

    async def run(text: str) -> None:
        results[text] = await python(bench, text.format(path=path, kind=1), policy)

    async with anyio.create_task_group() as group:
        group.start_soon(run, SERVER)
        group.start_soon(run, CLIENT)
    assert (results[SERVER].stdout, results[CLIENT].stdout) == (b"ping\n", b"pong\n"), results


async def test_a_read_only_command_has_sockets_in_its_own_temporary_directory(bench: Bench) -> None:
    code = """
import os, socket
s, c = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
s.bind(os.environ['TMPDIR'] + '/s'); s.listen(); c.connect(s.getsockname()); print('in touch')
try: socket.socket(socket.AF_UNIX).bind('here')
except OSError as error: print(type(error).__name__)
"""
    result = await python(bench, code, ReadOnly())
    assert result.stdout.split(b"\n")[0] == b"in touch"
    assert not (bench.ws / "here").exists()


@pytest.mark.parametrize("policy", [OFFLINE, ONLINE])
@pytest.mark.parametrize("place", ["outside", "ws"])
async def test_nobody_outside_is_reached_wherever_the_socket_lies(
    bench: Bench, witness: list[socket.socket], policy: SandboxPolicy, place: str
) -> None:
    folder = bench.outside if place == "outside" else bench.ws
    for name, kind in (("stream", 1), ("packets", 5), ("datagram", 2)):
        witness.append(listens(folder / name, kind))
    witness += [listens(f"\0{folder}"), listens(f"\0{folder}-datagram", socket.SOCK_DGRAM)]
    (bench.ws / "way").symlink_to(folder)
    for one in witness:
        address = one.getsockname()
        for name in (address, f"way/{Path(str(address)).name}") if isinstance(address, str) else (address,):
            code = f"import socket\ns = socket.socket(1, {int(one.type)})\n"
            for act in (f"s.connect({name!r})\ns.sendall(b'x')", f"s.sendto(b'x', {name!r})"):
                assert (await python(bench, code + act, policy)).exit_code != 0
    code = f"import socket\nsocket.socketpair(1, 2)[0].sendmsg([b'x'], [], 0, {str(folder / 'datagram')!r})"
    assert (await python(bench, code, policy)).exit_code != 0
    assert all(nobody_came(one) for one in witness)


async def test_a_refusal_looks_like_the_sandbox_and_a_dead_server_like_one(
    bench: Bench, witness: list[socket.socket]
) -> None:
    witness.append(listens(bench.ws / "theirs"))
    listens(bench.ws / "dead").close()
    (bench.ws / "file").touch()
    refused = await python(bench, connecting("theirs"))
    assert b"PermissionError" in refused.stderr
    assert refused.denied
    for name, error in (("dead", b"ConnectionRefusedError"), ("file", b"ConnectionRefusedError")):
        assert error in (await python(bench, connecting(name))).stderr
    assert b"FileNotFoundError" in (await python(bench, connecting("missing"))).stderr


async def test_a_command_cannot_use_a_server_whose_roots_it_has_not(bench: Bench) -> None:
    """That server writes in roots where this command may not."""
    gate = bench.ws / "b" / "gate"
    server = f"""
import os, socket, time
s = socket.socket(1); s.bind('s'); s.listen(); s.setblocking(False)
while not os.path.exists({str(gate)!r}): time.sleep(0.001)
try: print(s.accept())
except BlockingIOError: print('nobody')
"""
    client = f"""
import os, socket, time
while not os.path.exists('../a/s'): time.sleep(0.001)
try: socket.socket(1).connect('../a/s')
except OSError as error: print(type(error).__name__)
open({str(gate)!r}, 'w')
"""
    results: dict[str, ExecResult] = {}

    async def run(name: str, code: str) -> None:
        folder = str(bench.ws / name)
        spec = bench.spec(sys.executable, "-I", "-c", code)
        spec = replace(spec, cwd=folder, sandbox=bench.runner.plan(OFFLINE, folder))
        results[name] = await bench.runner.run(spec, lambda *_: None)

    async with anyio.create_task_group() as group:
        for name, code in (("a", server), ("b", client)):
            (bench.ws / name).mkdir()
            group.start_soon(run, name, code)
    assert (results["a"].stdout, results["b"].stdout) == (b"nobody\n", b"PermissionError\n"), results


@pytest.mark.parametrize("policy", [OFFLINE, ONLINE])
async def test_a_path_that_changes_during_the_call_leads_to_nobody_outside(
    bench: Bench, witness: list[socket.socket], policy: SandboxPolicy
) -> None:
    """Another thread rewrites the address, moves the link and swaps the descriptor while the broker checks it."""
    witness.append(listens(bench.outside / "s"))
    witness.append(listens(bench.ws / "theirs"))
    code = f"""
import ctypes, os, socket, threading, time
C = ctypes.CDLL(None, use_errno=True)
mine = socket.socket(1); mine.bind('mine'); mine.listen(1000)
def take():
    while True:  # else the queue is full one day, and a call waits for ever
        mine.accept()[0].close()
threading.Thread(target=take, daemon=True).start()
names = [b'mine', b'theirs', b'link', {str(bench.outside / "s").encode()!r}]
address = ctypes.create_string_buffer(110)
def write(name):
    ctypes.memmove(address, b'\\1\\0' + name + b'\\0', len(name) + 3)
ends = time.monotonic() + 60; rounds = 0
def swap():
    n = 0
    while rounds < 3_000:
        n += 1
        write(names[n % 4])
        os.symlink(names[n % 4 and 3], f'l{{n % 2}}'); os.rename(f'l{{n % 2}}', 'link')
threading.Thread(target=swap).start()
reached = 0
while rounds < 3_000 or not reached and time.monotonic() < ends:
    rounds += 1
    s = socket.socket(1)
    if C.connect(s.fileno(), ctypes.byref(address), 110) == 0:
        reached += 1
    s.close()
print(reached, flush=True)
os._exit(0)
"""
    result = await python(bench, code, policy)
    assert result.stdout, result
    assert int(result.stdout) > 0
    assert all(nobody_came(one) for one in witness)


async def test_a_server_that_takes_no_connection_holds_up_nobody_else(bench: Bench) -> None:
    code = """
import socket, subprocess, sys, threading
full = socket.socket(1); full.bind('full'); full.listen(0)
def fill():
    held.append(socket.socket(1)); held[-1].connect('full')
held = []
threads = [threading.Thread(target=fill, daemon=True) for _ in range(6)]
for one in threads: one.start()
free = socket.socket(1); free.bind('free'); free.listen()
c = socket.socket(1); c.connect('free'); print('free')
n = socket.socket(1); n.setblocking(False)
try:
    for _ in range(9):
        n = socket.socket(1); n.setblocking(False); n.connect('full')
except BlockingIOError: print('full')
sys.stdout.flush(); import os; os._exit(0)
"""
    result = await python(bench, code)
    assert result.stdout.split() == [b"free", b"full"], result.stderr


async def test_signals_interrupt_a_connection_and_break_none(bench: Bench) -> None:
    """Neither a waiting connection, which a program may limit in time, nor one that is being made."""
    code = """
import signal, socket
def late(*_): raise TimeoutError
full = socket.socket(1); full.bind('full'); full.listen(0)
socket.socket(1).connect('full')
signal.signal(signal.SIGALRM, late); signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    held = [socket.socket(1) for _ in range(3)]
    for one in held: one.connect('full')
except TimeoutError: print('limited')
free = socket.socket(1); free.bind('free'); free.listen(2000)
count = 0
def often(*_): global count; count += 1
signal.signal(signal.SIGALRM, often); signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while count < 200:
    socket.socket(1).connect('free'); free.accept()
signal.setitimer(signal.ITIMER_REAL, 0)
print('whole')
"""
    result = await python(bench, code)
    assert result.stdout.split() == [b"limited", b"whole"], result.stderr


async def test_with_the_network_on_other_connections_are_as_ever(bench: Bench) -> None:
    code = """
import asyncio, socket
async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    print(await reader.read())
asyncio.run(main())
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname(), 2)
c.sendall(b'tcp'); print(s.accept()[0].recv(9))
u = socket.socket(2, 2); u.bind(('127.0.0.1', 0))
v = socket.socket(2, 2); v.connect(u.getsockname()); v.send(b'udp'); print(u.recv(9))
s.close()
try: socket.create_connection(s.getsockname() if s.fileno() > 0 else ('127.0.0.1', 1), 2)
except ConnectionRefusedError: print('refused')
"""
    result = await python(bench, code, ONLINE)
    assert result.stdout.split() == [b"b''", b"b'tcp'", b"b'udp'", b"refused"], result.stderr


def brokers(bench: Bench) -> list[int]:
    """Return the children of the launcher's children that have no pid namespace of their own."""
    tree = descendants.parents()
    launcher = bench.launcher_pid
    found = []
    for pid, parent in tree.items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            if tree.get(parent) == launcher and pid_namespaces(pid) == pid_namespaces(os.getpid()):
                found.append(pid)
    return found


def pid_namespaces(pid: int) -> int:
    """Return how many pid namespaces contain the process. They cannot be listed, because the launcher's children are
    hidden.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(len(line.split()) for line in lines if line.startswith("NSpid:"))


async def test_a_broker_that_was_killed_is_replaced(bench: Bench) -> None:
    pair = "import socket; s = socket.socket(1); s.bind({0!r}); s.listen(); socket.socket(1).connect({0!r})"
    assert (await bench.sh("true", OFFLINE)).exit_code == 0
    assert brokers(bench) == []
    assert (await python(bench, pair.format("one"))).exit_code == 0
    (first,) = brokers(bench)
    os.kill(first, signal.SIGKILL)
    assert (await python(bench, pair.format("two"))).exit_code == 0
    assert first not in brokers(bench)
