"""A home with a server that clients share, as processes. The server is started by hand, by `daemon` or by a proxy, and
ends with the test.
"""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from app_server.engine.support.socket_paths import SocketPaths, place_of_home
from app_server_protocol.encoding import Json
from tests.support.pipes import PATIENCE, Piped
from tests.support.places import Place, nothing_left
from tests.support.processes import alive, marked
from tests.support.program import SCRIPT
from tests.support.scripted_model import ScriptedModel
from tests.support.waiting import wait_until
from tests.support.world import plain_environment, write_config

MARK = "APP_SERVER_TEST"
"""Name of a variable that a server inherits from the process that starts it."""

INITIALIZE = b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"tests","version":"1"}}}\n'


class Running:
    """Server that the test has started itself."""

    def __init__(self, process: subprocess.Popen[bytes], err: IO[bytes]) -> None:
        self.process, self.err = process, err
        self.pid = process.pid

    def listening_on(self, count: int) -> list[str]:
        """Wait until the server reports that it listens; return its addresses."""
        found = []
        for _ in range(count):
            line = self.err.readline().decode()
            assert line.startswith("listening on "), line
            found.append(line.removeprefix("listening on ").strip())
        return found

    def ended(self) -> tuple[int, str]:
        """Wait until the server has ended by itself; return its exit status and its last output."""
        return self.process.wait(PATIENCE), self.err.read().decode()


class SharedHome:
    def __init__(self, root: Path, home: Path | None = None) -> None:
        self.root, self.home = root, home or root / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.config = ""
        self.environment = plain_environment(self.home, HOME=str(root), **{MARK: str(root)})

    @property
    def place(self) -> SocketPaths:
        return place_of_home(str(self.home))

    @property
    def log(self) -> str:
        return Path(self.place.log).read_text()

    def configure(self, text: str) -> None:
        self.config = text
        (self.home / "config.toml").write_text(text)

    @contextmanager
    def server(
        self, *listen: str, command: Sequence[str] = (SCRIPT,), more: Sequence[str] = ()
    ) -> Iterator[Running]:
        """Run a server; kill it at the end of the block if it has not ended."""
        words = [f"--listen={address}" for address in listen or ("unix://",)]
        process = subprocess.Popen(
            (*command, *words, *more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self.root,
        )
        assert process.stderr is not None
        try:
            yield Running(process, process.stderr)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()

    def run(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            (SCRIPT, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.root,
            timeout=PATIENCE * 2,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def daemon(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Run `daemon`; return its exit status and its answer."""
        json_wanted = () if "--json" in words else ("--json",)
        status, out, err = self.run("daemon", *words, *json_wanted)
        assert out, err
        return status, json.loads(out)

    def status(self) -> dict[str, Any]:
        return self.daemon("status", "--json")[1]

    def wait_until_loaded(self) -> None:
        """Wait until the server has loaded the modules that its clients have not needed yet."""
        wait_until(lambda: bool(self.status()["loaded"]), lambda: self.log)

    def client(self, *words: str, environment: dict[str, str] | None = None) -> Piped:
        """Start a client over a proxy. Without arguments the command is the proxy."""
        given = {**self.environment, **(environment or {})}
        return Piped(self.root, *(words or ("proxy",)), environment=given, config=self.config)

    def servers(self) -> set[int]:
        """Return the running servers of this home, without their children."""
        found = set()
        for pid in marked(f"{MARK}={self.root}"):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if re.search(rb"\0--listen[\0=]", command):
                found.add(pid)
        return found

    def connect(self) -> socket.socket:
        address = self.place.address()
        assert address is not None
        return connect(address)


def connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE)
    connection.connect(path)
    return connection


def answer_of(connection: socket.socket, said: bytes = INITIALIZE) -> dict[str, Any]:
    """Send a line on a connection and return the answer."""
    connection.sendall(said)
    answer: dict[str, Any] = json.loads(read_line(connection))
    return answer


def read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        some = connection.recv(1)
        assert some, f"the connection ended after {line!r}"
        line += some
    return line


def is_closed(connection: socket.socket) -> bool:
    """Return whether the peer closes the connection without another byte."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@contextmanager
def shared_homes(folder: Path) -> Iterator[SharedHome]:
    """Yield a home; its servers and their children have to be gone afterwards, and are killed otherwise."""
    home = SharedHome(folder)
    try:
        yield home
    finally:
        left = home.servers()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        still = alive(marked(f"{MARK}={folder}"))
        assert not still, f"left: {still}"


@asynccontextmanager
async def shared_home(
    folder: Path, model: ScriptedModel, settings: Mapping[str, Json]
) -> AsyncIterator[SharedHome]:
    """Yield a home whose servers use this model."""
    with shared_homes(folder) as home:
        async with model.serving() as url:
            write_config(home.home, url, settings)
            yield home


@asynccontextmanager
async def shared_by_wish(environment: Mapping[str, str]) -> AsyncIterator[dict[str, str]]:
    """Yield the environment of clients whose command is a proxy. The server that they start has ended afterwards."""
    shared = {**environment, "APP_SERVER_SHARED": "1"}
    yield shared
    stop = (SCRIPT, "daemon", "stop", "--now", "--json")
    done = await anyio.run_process(stop, env=shared, check=False)
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "stopped"), done.stderr


@asynccontextmanager
async def running_server(place: Place) -> AsyncIterator[Process]:
    """Run a server that listens at the home's place; kill it at the end of the block if it has not ended."""
    mark = secrets.token_hex(8)
    async with await anyio.open_process(
        (SCRIPT, "--listen=unix://"), env=place.variables(mark), cwd=place.root
    ) as process:
        assert process.stderr is not None
        async for text in TextReceiveStream(process.stderr):
            if "listening on" in text:
                break
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
    await nothing_left(mark)
