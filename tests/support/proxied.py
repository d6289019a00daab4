"""`app-server proxy` as a process, and a server for it whose messages a test writes."""

import json
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from app_server.engine.support.socket_paths import place_of_home
from app_server_protocol.encoding import Json
from tests.support.pipes import PATIENCE
from tests.support.program import PYTHON, SCRIPT
from tests.support.world import plain_environment

YES = b'{"preface":1,"version":"9","ok":true}\n'
NO = b'{"preface":1,"ok":false,"reason":"no place is left"}\n'


class Listening:
    """A listening socket at the place of a home. The test itself answers its connections."""

    def __init__(self, home: Path) -> None:
        self.home = home
        place = place_of_home(str(home))
        place.make_ready()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(place.socket)
        self.socket.listen()
        self.socket.settimeout(PATIENCE)

    def accept(self) -> socket.socket:
        connection, _ = self.socket.accept()
        connection.settimeout(PATIENCE)
        return connection

    def greeted(self, answer: bytes = YES) -> tuple[socket.socket, Json]:
        """Accept a connection and answer its preface; return both."""
        connection = self.accept()
        line = b""
        while not line.endswith(b"\n"):
            some = connection.recv(1 << 16)
            assert some, "the proxy left"
            line += some
        connection.sendall(answer)
        return connection, json.loads(line)


@contextmanager
def listening(home: Path) -> Iterator[Listening]:
    server = Listening(home)
    with server.socket:
        yield server


class Proxy:
    """A proxy process and the client's ends of its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.pid = process, process.pid
        self.stdin: Any = process.stdin
        self.stdout: Any = process.stdout
        self.stderr: Any = process.stderr

    def say(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def ended(self) -> int:
        """Wait until the proxy has ended by itself; return its exit status."""
        return self.process.wait(PATIENCE)


@contextmanager
def met(home: Path, *words: str, **given: Any) -> Iterator[tuple[Proxy, socket.socket]]:
    """Yield a proxy, and the connection on which its server has accepted it."""
    with listening(home) as server, proxy(home, *words, **given) as client:
        yield client, server.greeted()[0]


@contextmanager
def proxy(
    home: Path,
    *words: str,
    stdin: int | IO[bytes] = subprocess.PIPE,
    stdout: int | IO[bytes] = subprocess.PIPE,
    command: Sequence[str] = (SCRIPT, "proxy"),
    environment: dict[str, str] | None = None,
) -> Iterator[Proxy]:
    """Run a proxy; kill it at the end of the block if it has not ended by itself."""
    process = subprocess.Popen(
        (*command, *words),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=plain_environment(home) if environment is None else environment,
        cwd=home,
    )
    try:
        yield Proxy(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def received(connection: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes."""
    out = bytearray()
    while len(out) < count:
        some = connection.recv(min(1 << 20, count - len(out)))
        assert some, f"the proxy left after {len(out)} of {count} bytes"
        out += some
    return bytes(out)


SHOWS_MODULES = """
import os, sys
ends = os._exit
def end(status):
    os.write(2, " ".join(sys.modules).encode())
    ends(status)
os._exit = end
sys.argv[0] = "app-server"
from app_server.__main__ import main
main()
"""
"""Program of a proxy that prints to stderr the modules that it has imported."""

MODULES_COMMAND = (PYTHON, "-P", "-c", SHOWS_MODULES, "proxy")
