"""Waiting times of many clients of one shared server: watchers of one thread, a client that does not read beside one
that does, and a hundred with a turn each.

Clients are sockets of this process, without proxies, so that the server's part shows.
"""

from __future__ import annotations

import json
import math
import selectors
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from app_server_protocol.encoding import Json
from benchmarks.figures import Unit, written
from benchmarks.model import model_process
from benchmarks.place import Place, temporary_place
from benchmarks.processes import footprint, own_cpu_seconds, rss
from benchmarks.report import Table
from benchmarks.shared import listening

DELTAS = 20_000
WATCHERS = 50
CLIENTS = 100
READ_SIZE = 1 << 20
LAST = b'"turn/completed"'
DELTA = b'"item/agentMessage/delta"'


@dataclass
class Peer:
    """Client that writes lines to the socket, and searches the received bytes."""

    socket: socket.socket
    received: int = 0
    deltas: int = 0
    ends: int = 0
    times: list[float] = field(default_factory=list)
    """Times at which the turns ended, in seconds."""
    _rest: bytes = b""
    _last_id: int = 0

    def request(self, method: str, params: Json) -> int:
        self._last_id += 1
        self.socket.sendall(
            json.dumps({"id": self._last_id, "method": method, "params": params}).encode() + b"\n"
        )
        return self._last_id

    def call(self, method: str, params: Json) -> Json:
        """Send a request, and read until it is answered."""
        id = self.request(method, params)
        while True:
            line = self._line()
            if LAST in line:
                self.ends += 1
            if line.startswith(b'{"id":%d,' % id) or (message := json.loads(line)).get("id") == id:
                message = json.loads(line)
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            data = self.socket.recv(READ_SIZE)
            if not data:
                raise EOFError("the server has closed the connection")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def read(self) -> None:
        """Read the bytes that have arrived."""
        data = self.socket.recv(READ_SIZE)
        if not data:
            raise EOFError("the server has closed the connection")
        self.received += len(data)
        lines, _, self._rest = (self._rest + data).rpartition(b"\n")
        self.deltas += lines.count(DELTA)
        ended = lines.count(LAST)
        if ended:
            self.ends += ended
            self.times.append(time.perf_counter())


def connect(place: Place) -> Peer:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(place.home / "app-server-control" / "app-server.sock"))
    peer = Peer(connection)
    info = {"name": "bench", "version": "1"}
    peer.call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
    return peer


def start(peer: Peer, place: Place) -> str:
    return str(peer.call("thread/start", {"cwd": str(place.workspace)})["thread"]["id"])


def begin_turn(peer: Peer, thread: str) -> None:
    peer.request("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "hi"}]})


def read_until_ended(peers: Sequence[Peer]) -> None:
    """Read for all peers until each has received the end of one more turn."""
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.ends = 0
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        while any(not peer.ends for peer in peers):
            for key, _ in selector.select():
                key.data.read()


@contextmanager
def server(command: Sequence[str], deltas: int) -> Iterator[tuple[Place, int]]:
    """Run a warm shared server; yield its place and its process id."""
    said = f"reply(*counted({deltas}))" if deltas else "HELLO"
    with model_process(said) as url, temporary_place() as place:
        place.configure(url, "danger-full-access")
        with listening(command, place) as process:
            yield place, process.pid


@dataclass
class Watched:
    """Cost of one turn of many deltas, for the number of clients that watch it."""

    seconds: float
    cpu: float
    memory: float
    """Memory at the end, in MiB."""


def watch(command: Sequence[str], watchers: int, rounds: int) -> Watched:
    found: list[Watched] = []
    with server(command, DELTAS) as (place, pid):
        peers = [connect(place) for _ in range(watchers)]
        thread = start(peers[0], place)
        begin_turn(peers[0], thread)
        read_until_ended(peers[:1])  # warm
        for peer in peers[1:]:
            peer.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        for _ in range(rounds):
            begin, cpu = time.perf_counter(), own_cpu_seconds(pid)
            begin_turn(peers[0], thread)
            read_until_ended(peers)
            seconds = time.perf_counter() - begin
            found.append(Watched(seconds, own_cpu_seconds(pid) - cpu, footprint(pid).tree))
    return min(found, key=lambda each: each.seconds)


def beside_one_that_does_not_read(command: Sequence[str], rounds: int) -> tuple[float, float]:
    """Return the times of a client that reads a long turn alone, and beside one that does not read, in seconds."""
    alone, beside = [], []
    with server(command, DELTAS) as (place, _):
        reader, other = connect(place), connect(place)
        thread = start(reader, place)
        for _ in range(rounds + 1):
            for times, slow in ((alone, False), (beside, True)):
                if slow:
                    other.call("thread/resume", {"threadId": thread, "excludeTurns": True})
                begin = time.perf_counter()
                begin_turn(reader, thread)
                read_until_ended([reader])
                times.append(time.perf_counter() - begin)
                if slow:
                    read_until_ended([other])
                    other.call("thread/unsubscribe", {"threadId": thread})
    return statistics.median(alone[1:]), statistics.median(beside[1:])


@dataclass
class Hundred:
    seconds: float
    p95: float
    memory: float
    """Memory at the end, in MiB."""
    per_client: float
    """Memory of a client that has connected and done nothing else, in KiB."""


def hundred(command: Sequence[str]) -> Hundred:
    with server(command, 0) as (place, pid):
        first = connect(place)
        begin_turn(first, start(first, place))
        read_until_ended([first])
        before = rss(pid)
        peers = [connect(place) for _ in range(CLIENTS)]
        per_client = (rss(pid) - before) / CLIENTS * 1024
        begin = time.perf_counter()
        for peer, thread in [(peer, start(peer, place)) for peer in peers]:
            begin_turn(peer, thread)
        read_until_ended(peers)
        seconds = time.perf_counter() - begin
        times = sorted(peer.times[-1] - begin for peer in peers)
        return Hundred(seconds, times[math.ceil(CLIENTS * 0.95) - 1], footprint(pid).tree, per_client)


def table(command: Sequence[str], rounds: int) -> Table:
    one, many = watch(command, 1, rounds), watch(command, WATCHERS, rounds)
    alone, beside = beside_one_that_does_not_read(command, rounds)
    all = hundred(command)
    return [
        ("", "figure"),
        (f"one client watches {DELTAS:,} deltas", written(one.seconds, Unit.SECONDS)),
        (f"{WATCHERS} clients watch them", written(many.seconds, Unit.SECONDS)),
        ("... times one", f"{many.seconds / one.seconds:.1f}"),
        ("... the server's CPU, times one", f"{many.cpu / one.cpu:.1f}"),
        ("... more memory of the server", written(many.memory - one.memory, Unit.MEBIBYTES)),
        ("one that reads, beside one that does not, times alone", f"{beside / alone:.2f}"),
        (
            f"{CLIENTS} clients, a thread and a turn each at once: all ended",
            written(all.seconds, Unit.SECONDS),
        ),
        ("... 95 % of them ended", written(all.p95, Unit.SECONDS)),
        ("... memory of the server with its helpers", written(all.memory, Unit.MEBIBYTES)),
        ("... of each connected client", f"{all.per_client:.0f} KiB"),
    ]
