"""Starts of a shared server: many at once, starters that are killed, a stop in between, and homes where no server can
start.
"""

import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.pipes import PATIENCE, Piped
from tests.support.places import LONG
from tests.support.program import PYTHON, SCRIPT
from tests.support.shared import INITIALIZE, SharedHome, answer_of, shared_homes
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.faults, pytest.mark.slow]

SEED = os.environ.get("FAULTS_SEED") or str(random.randrange(1 << 32))
AT_ONCE = 100
STOPS = 20 if LONG else 4
DROPS = 10_000 if LONG else 2_000

DOOMED = """
import os, signal, sys
import app_server.server.proxy.spawn as starting

left = int(sys.argv.pop(1))
starter = os.getpid()

class Counted:
    '''`os`, which kills the starter before one of its calls. Nothing happens between two of them.'''

    def __getattr__(self, name):
        value = getattr(os, name)
        if not callable(value) or name.startswith("_"):
            return value
        def call(*arguments, **more):
            count(name)
            return value(*arguments, **more)
        return call

def count(name):
    global left
    if os.getpid() == starter:
        left -= 1
        if left == 0:
            os.write(2, name.encode())
            os.kill(starter, signal.SIGKILL)

starting.os = Counted()
sys.argv[0] = "app-server"
from app_server.__main__ import main
main()
"""
"""Program of a proxy that is killed at a step of its start."""


@pytest.fixture
def shared(short_folder: Path) -> Iterator[SharedHome]:
    with shared_homes(short_folder) as home:
        yield home


def test_a_hundred_proxies_at_once_have_one_server(shared: SharedHome) -> None:
    processes = [
        subprocess.Popen(
            (SCRIPT, "proxy"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=shared.environment,
            cwd=shared.root,
        )
        for _ in range(AT_ONCE)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(INITIALIZE)
            process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            answer = process.stdout.readline()
            assert answer, process.communicate()[1]
            assert "result" in json.loads(answer)
        status = shared.status()
        assert {each["pid"] for each in status["clients"]} == {process.pid for process in processes}
        assert shared.servers() == {status["pid"]}
    finally:
        said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    assert set(said) == {b""}
    assert {process.returncode for process in processes} == {0}


def test_a_starter_may_be_killed_at_each_of_its_steps(shared: SharedHome) -> None:
    step, steps = 0, []
    while True:
        step += 1
        doomed = subprocess.run(
            (PYTHON, "-P", "-c", DOOMED, str(step), "proxy"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=shared.environment,
            cwd=shared.root,
            check=False,
            timeout=PATIENCE,
        )
        if doomed.returncode == 0:
            break
        assert doomed.returncode == -signal.SIGKILL, doomed.stderr
        steps.append(doomed.stderr.decode())
        status, started = shared.daemon("start")
        assert status == 0, (steps, started)
        assert shared.servers() == {started["pid"]}, steps
        assert shared.daemon("stop", "--now")[1]["status"] == "stopped"
        assert shared.servers() == set()
    assert {"open", "pipe", "fork", "waitpid", "read", "close"} <= set(steps)
    shared.daemon("stop")


def test_a_stop_in_the_middle_of_a_start_leaves_one_server_or_none(shared: SharedHome) -> None:
    draw = random.Random(SEED)
    for _ in range(STOPS):
        with ThreadPoolExecutor(2) as pool:
            start = pool.submit(shared.daemon, "start")
            try:
                wait = draw.random() * 1.5  # usually it has started by then
                start.exception(wait)
            except TimeoutError:
                pass
            stopped = shared.daemon("stop")
            status, started = start.result()
        assert status == 0
        assert stopped[1]["status"] in ("stopped", "notRunning"), f"seed {SEED}"
        left = shared.servers()
        assert len(left) == (stopped[1]["status"] == "notRunning"), f"seed {SEED}"
        if left:  # a server that was stopped before `start` asked for its status has no process id to report
            assert left == {started["pid"]}, f"seed {SEED}"
        shared.daemon("stop")
        assert shared.servers() == set()


@pytest.mark.parametrize(
    "fault", ["a home that cannot be written", "a full disk", "no place for a long path"]
)
def test_where_no_server_can_start_the_proxy_serves_alone(short_folder: Path, fault: str) -> None:
    with shared_homes(short_folder) as shared, ExitStack() as undo:
        if fault == "a home that cannot be written":
            mount(shared.home, "ro", undo)
        elif fault == "a full disk":
            mount(shared.home, "size=8k,nr_inodes=2", undo)  # room for the folder and for nothing in it
        else:
            shared.home = shared.root / ("h" * 150)
            shared.home.mkdir()
            (shared.root / "run").touch()
            shared.environment |= {
                "CODEX_HOME": str(shared.home),
                "XDG_RUNTIME_DIR": str(shared.root / "run"),
            }
        with client_alone(shared) as client:
            client.initialize()
            said = client.log.read_text()
        assert said.startswith(
            "app-server: this client is served alone: no shared server could be started: "
        ), said
        assert said.count("\n") == 1, said
        assert shared.servers() == set()


def client_alone(shared: SharedHome) -> Piped:
    """Return a proxy for a home into which the test itself can write nothing."""
    root = shared.root / "of the client"
    root.mkdir()
    return Piped(root, "proxy", environment=shared.environment)


def mount(folder: Path, options: str, undo: ExitStack) -> None:
    command = ("mount", "-t", "tmpfs", "-o", options, "none", str(folder))
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    undo.callback(subprocess.run, ("umount", "-l", str(folder)), check=True)


def test_clients_that_come_and_go_leave_nothing(shared: SharedHome) -> None:
    with shared.server() as server:
        server.listening_on(1)
        shared.wait_until_loaded()
        come_and_go(shared, DROPS // 10)  # create what is created only once
        wait_until(lambda: shared.status()["clients"] == [])
        before = shared.status()["memoryBytes"]
        opened = len(os.listdir(f"/proc/{server.pid}/fd"))
        come_and_go(shared, DROPS)
        wait_until(lambda: shared.status()["clients"] == [])
        wait_until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) <= opened)
        assert shared.status()["memoryBytes"] < before + (8 << 20)
        with shared.connect() as client:
            assert "result" in answer_of(client)


def come_and_go(shared: SharedHome, count: int) -> None:
    for number in range(count):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(shared.place.socket)
            if number % 5 == 0:
                answer_of(connection)
            elif number % 5 == 1:
                connection.sendall(INITIALIZE[: number % len(INITIALIZE)])
            elif number % 5 == 2:
                connection.sendall(b'{"preface":1,"api":null,')
            elif number % 5 == 3:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
