"""Waiting times of a client of a shared server, through a proxy, beside the reference's warm server through its own
proxy.

The reference's proxy passes WebSocket bytes, so its client uses WebSocket over the same pipes.
"""

from __future__ import annotations

import json
import math
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.uri import parse_uri

from app_server_protocol.encoding import Json
from benchmarks.compare import OURS, REFERENCE, Say, sides
from benchmarks.figures import Unit, ratio_written, written
from benchmarks.model import model_process
from benchmarks.place import Place, temporary_place
from benchmarks.processes import footprint, rss
from benchmarks.report import Table

LISTENS_WITHIN = 30.0
AT_ONCE = 100
RELAYED = 256 << 20
READ_SIZE = 1 << 16

FIGURES = (
    ("initialize", "proxy spawned, until `initialize` is answered", Unit.SECONDS),
    ("thread", "… until the first `thread/start` is answered", Unit.SECONDS),
    ("turn", "… until the first turn has ended", Unit.SECONDS),
    ("cold", "the same turn with no server running", Unit.SECONDS),
    ("own", "the same turn of a server of its own, without a proxy", Unit.SECONDS),
    ("proxy_rss", "memory of the proxy then", Unit.MEBIBYTES),
    ("proxy_pss", "… each page shared among its processes", Unit.MEBIBYTES),
    ("proxy_threads", "threads of the proxy", Unit.COUNT),
    ("server_pss", "memory of the idle server with its helpers", Unit.MEBIBYTES),
)


class Wire(Protocol):
    """Messages over the pipes of a proxy."""

    def send(self, message: Json) -> None: ...

    def receive(self) -> Json: ...


class Lines:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def send(self, message: Json) -> None:
        self._in.write(json.dumps(message).encode() + b"\n")
        self._in.flush()

    def receive(self) -> Json:
        line = self._out.readline()
        if not line:
            raise EOFError("the proxy has ended")
        return json.loads(line)


class WebSocket:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._protocol = ClientProtocol(parse_uri("ws://localhost/rpc"), max_size=None)
        self._messages: list[bytes] = []
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while not self._protocol.handshake_exc and self._protocol.state.name == "CONNECTING":
            self._read()

    def send(self, message: Json) -> None:
        self._protocol.send_text(json.dumps(message).encode())
        self._flush()

    def receive(self) -> Json:
        while not self._messages:
            self._read()
        return json.loads(self._messages.pop(0))

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            os.write(self._in, data)

    def _read(self) -> None:
        data = os.read(self._out, READ_SIZE)
        if not data:
            raise EOFError("the proxy has ended")
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in (1, 0):
                self._messages.append(bytes(event.data))
        self._flush()


class Client:
    """Client, measured from the spawning of its proxy or its server on."""

    def __init__(
        self, command: Sequence[str], place: Place, wire: Callable[[subprocess.Popen[bytes]], Wire]
    ) -> None:
        self._begin = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=place.environment,
            cwd=place.workspace,
        )
        self._wire = wire(self.process)
        self._place, self._last_id = place, 0

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._begin

    def call(self, method: str, params: Json) -> Json:
        self._last_id += 1
        self._wire.send({"id": self._last_id, "method": method, "params": params})
        while True:
            message = self._wire.receive()
            if message.get("id") == self._last_id and "method" not in message:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def initialize(self) -> None:
        info = {"name": "bench", "version": "1"}
        self.call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
        self._wire.send({"method": "initialized"})

    def start(self) -> str:
        return str(self.call("thread/start", {"cwd": str(self._place.workspace)})["thread"]["id"])

    def turn(self, thread: str) -> None:
        self.call("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "hi"}]})
        while self._wire.receive().get("method") != "turn/completed":
            pass

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def listening(command: Sequence[str], place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """Run a shared server at the place; yield it once its socket exists."""
    folder = place.home / "app-server-control"
    with subprocess.Popen(
        (*command, "--listen", "unix://"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=place.environment,
        cwd=place.workspace,
    ) as process:
        try:
            until(lambda: (folder / "app-server-control.sock").exists())
            until(lambda: is_loaded(command, place))
            yield process
        finally:
            process.kill()


def is_loaded(command: Sequence[str], place: Place) -> bool:
    """Return whether a server has loaded everything that it does not need at once. The reference's always has."""
    asked = subprocess.run(
        (*command, "daemon", "status", "--json"), env=place.environment, capture_output=True
    )
    return asked.returncode != 0 or bool(json.loads(asked.stdout).get("loaded", True))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LISTENS_WITHIN
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("nothing listens")
        time.sleep(0.01)


def measure(side: str, command: Sequence[str], url: str, rounds: int) -> Iterator[Mapping[str, float]]:
    """Yield the figures of clients of one warm server."""
    wire = Lines if side == OURS else WebSocket
    with temporary_place() as place:
        place.configure(url, "danger-full-access")
        with listening(command, place) as server:
            for number in range(rounds + 1):
                found = one_client((*command, "proxy"), place, wire)
                if number:  # the first client warms it up
                    found["server_pss"] = footprint(server.pid).tree
                    yield found


def one_client(
    command: Sequence[str], place: Place, wire: Callable[[subprocess.Popen[bytes]], Wire]
) -> dict[str, float]:
    client = Client(command, place, wire)
    client.initialize()
    found = {"initialize": client.elapsed}
    thread = client.start()
    found["thread"] = client.elapsed
    client.turn(thread)
    found["turn"] = client.elapsed
    held = footprint(client.process.pid)
    found |= {
        "proxy_rss": rss(client.process.pid),
        "proxy_pss": held.tree,
        "proxy_threads": float(held.threads),
    }
    client.close()
    return found


def cold(command: Sequence[str], url: str) -> float:
    """Return the time in seconds until the first turn has ended of a client whose proxy starts the server."""
    with temporary_place() as place:
        place.configure(url, "danger-full-access")
        seconds = one_client((*command, "proxy"), place, Lines)["turn"]
        stop(command, place)
    return seconds


def own(command: Sequence[str], url: str) -> float:
    """Return the time in seconds until the first turn has ended of a client with a server of its own."""
    with temporary_place() as place:
        place.configure(url, "danger-full-access")
        return one_client(command, place, Lines)["turn"]


def stop(command: Sequence[str], place: Place) -> None:
    """End the server that a proxy has started."""
    words = (*command, "daemon", "stop", "--now")
    subprocess.run(words, env=place.environment, stdout=subprocess.DEVNULL, check=True)


def relay(command: Sequence[str]) -> float:
    """Return the throughput of a proxy in bytes per second, with lines of 1 KiB, from a server that only writes."""
    with temporary_place() as place:
        folder = place.home / "app-server-control"
        folder.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / "app-server.sock"))
            listening.listen()
            client = subprocess.Popen(
                (*command, "proxy"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=place.environment
            )
            connection, _ = listening.accept()
            while not connection.recv(READ_SIZE).endswith(b"\n"):
                pass
            connection.sendall(b'{"preface":1,"version":"0","ok":true}\n')
            piece = (b"x" * 1023 + b"\n") * 64
            if os.fork() == 0:
                for _ in range(RELAYED // len(piece)):
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
                os._exit(0)
            connection.close()
            assert client.stdout is not None
            begin, count = time.perf_counter(), 0
            while data := os.read(client.stdout.fileno(), 1 << 20):
                count += len(data)
            seconds = time.perf_counter() - begin
            client.communicate()
            os.wait()
    assert count == RELAYED
    return count / seconds


def at_once(command: Sequence[str], url: str) -> float:
    """Return the time in seconds until a hundred proxies, which start without a server, have an answer each."""
    with temporary_place() as place:
        place.configure(url, "danger-full-access")
        begin = time.perf_counter()
        clients = [Client((*command, "proxy"), place, Lines) for _ in range(AT_ONCE)]
        for client in clients:
            client.initialize()
        seconds = time.perf_counter() - begin
        for client in clients:
            client.close()
        stop(command, place)
    return seconds


def tables(rounds: int, say: Say) -> tuple[Table, str]:
    """Return the medians of all rounds, and the figures of this project alone."""
    both = sides()
    samples: dict[str, dict[str, list[float]]] = {}
    with model_process("HELLO") as url:
        runs = {side: measure(side, command, url, rounds) for side, command in both.items()}
        for number in range(rounds):
            for side, run in runs.items():
                say(f"shared {side} {number + 1}")
                for name, value in next(run).items():
                    samples.setdefault(name, {}).setdefault(side, []).append(value)
            for name, first in (("cold", cold), ("own", own)):
                samples.setdefault(name, {}).setdefault(OURS, []).append(first(both[OURS], url))
        for run in runs.values():
            next(run, None)
        hundred = statistics.median(at_once(both[OURS], url) for _ in range(3))
    speed = statistics.median(relay(both[OURS]) for _ in range(3))
    rows: list[Sequence[str]] = [("", "ours", "reference", "ratio")]
    for name, title, unit in FIGURES:
        ours, reference = (
            statistics.median(samples.get(name, {}).get(side) or [math.nan]) for side in (OURS, REFERENCE)
        )
        rows.append((title, written(ours, unit), written(reference, unit), ratio_written(ours / reference)))
    note = (
        f"A proxy passes {speed / 1e6:.0f} MB/s in lines of 1 KiB. {AT_ONCE} proxies at once, for which no server ran,"
        f" have their answers after {written(hundred, Unit.SECONDS)}."
    )
    return rows, note
