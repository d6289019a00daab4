"""`app-server proxy` with a server whose messages the test writes: bytes, ends, and which server serves which
client.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.engine.support.filelock import hold
from app_server.engine.support.socket_paths import place_of_home
from app_server.server.proxy.connect import ANSWERS_WITHIN
from app_server.server.proxy.relay import MOST_HELD
from tests.support.pipes import PATIENCE, Piped
from tests.support.processes import memory
from tests.support.program import PYTHON, SCRIPT
from tests.support.proxied import (
    MODULES_COMMAND,
    NO,
    YES,
    Listening,
    Proxy,
    listening,
    met,
    proxy,
    received,
)
from tests.support.waiting import wait_until
from tests.support.world import plain_environment

pytestmark = pytest.mark.process

DIED = b"app-server: the shared server ended; threads are stored and can be resumed\n"
MOST_MEMORY = 10 << 20


@pytest.fixture
def home(short_folder: Path) -> Path:
    folder = short_folder / "home"
    folder.mkdir()
    return folder


# --- the preface
def test_the_preface_says_who_asks_and_what_it_brings(home: Path) -> None:
    environment = {**plain_environment(home), "KEY": 'a "key"\n', "RAW": os.fsdecode(b"\xff\x80")}
    words = ("acp", "-c", "a=1", "--enable", "x", "--all-threads")
    with listening(home) as server, proxy(home, *words, environment=environment) as client:
        _, said = server.greeted()
        assert {key: said[key] for key in ("preface", "pid", "api", "cwd", "options", "all_threads")} == {
            "preface": 1,
            "pid": client.pid,
            "api": "acp",
            "cwd": str(home),
            "options": {"config": ["a=1"], "enable": ["x"]},
            "all_threads": True,
        }
        assert environment.items() <= said["env"].items()


def test_a_server_that_leaves_before_it_answers_is_asked_again(home: Path) -> None:
    with listening(home) as server, proxy(home) as client:
        for _ in range(3):
            server.accept().close()
        connection, _ = server.greeted()
        connection.sendall(b"{}\n")
        assert client.stdout.readline() == b"{}\n"


def test_nothing_is_imported_that_takes_long(home: Path) -> None:
    bare = subprocess.run(
        [PYTHON, "-P", "-c", "import sys; print(*sys.modules)"], stdout=subprocess.PIPE, check=True
    )
    with met(home, command=MODULES_COMMAND) as (client, connection):
        client.say(b"{}\n")
        assert received(connection, 3) == b"{}\n"
        connection.sendall(b"{}\n")
        connection.shutdown(socket.SHUT_WR)
        loaded = set(client.stderr.read().decode().split())
    new = loaded - set(bare.stdout.decode().split())
    cheap = {"__future__", "_socket", "gc", "select"}  # `gc` is a part of the interpreter, without a file
    assert {name for name in new if not name.startswith("app_server")} <= cheap
    ours = {name for name in new if name.startswith("app_server")}
    packages = {"app_server.server.proxy", "app_server.engine.support"}
    assert {name for name in ours if name.rpartition(".")[0] not in packages} == {
        *packages,
        *("app_server", "app_server.__main__", "app_server.server", "app_server.engine"),
    }


def test_a_proxy_is_small(home: Path) -> None:
    with met(home) as (client, connection):
        connection.sendall(b"{}\n")
        client.stdout.readline()
        assert memory(client.pid) <= MOST_MEMORY
        assert len(os.listdir(f"/proc/{client.pid}/task")) == 1


# --- bytes
def echo(server: Listening) -> threading.Thread:
    connection, _ = server.greeted()

    def run() -> None:
        while data := connection.recv(1 << 20):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def send_all_and_end(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    "data",
    [
        b"x" * (64 << 20) + b"\n",
        b'{"text":"\x00\xff"}\n' * 1000,
        b"no line end",
        b"\n" * MOST_HELD * 2,
        (b"y" * (MOST_HELD - 1) + b"\n") * 3 + (b"z" * (MOST_HELD + 1) + b"\n") * 3,
    ],
    ids=[
        "64 MiB in a line",
        "NUL bytes",
        "no line end",
        "empty lines",
        "lines about as long as what is held",
    ],
)
@pytest.mark.parametrize("way", ["pipes", "sockets", "files"])
def test_the_same_bytes_arrive(home: Path, tmp_path: Path, data: bytes, way: str) -> None:
    (tmp_path / "in").write_bytes(data)
    with (
        listening(home) as server,
        (tmp_path / "in").open("rb") as given,
        (tmp_path / "out").open("wb") as out,
    ):
        if way == "files":
            with proxy(home, stdin=given, stdout=out) as client:
                thread = echo(server)
                assert client.ended() == 0
            heard = (tmp_path / "out").read_bytes()
        elif way == "pipes":
            with proxy(home) as client:
                thread = echo(server)
                heard, _ = client.process.communicate(data, PATIENCE)
                assert client.process.returncode == 0
        else:
            ours, theirs = socket.socketpair()
            with ours, proxy(home, stdin=theirs.fileno(), stdout=theirs.fileno()) as client:
                theirs.close()
                thread = echo(server)
                writer = threading.Thread(target=send_all_and_end, args=(ours, data))
                writer.start()
                heard = received(ours, len(data))
                assert client.ended() == 0
                writer.join()
        thread.join()
    assert (len(heard), heard == data) == (len(data), True)


def test_single_bytes_arrive_as_they_come(home: Path) -> None:
    data = b'{"a":"\x00"}\nrest'
    with met(home) as (client, connection):
        for byte in data:
            client.say(bytes((byte,)))
            assert received(connection, 1) == bytes((byte,))
        for byte in data:
            connection.sendall(bytes((byte,)))
        assert client.stdout.readline() == b'{"a":"\x00"}\n'
        connection.shutdown(socket.SHUT_WR)
        assert client.stdout.read() == b"rest"


def test_a_websocket_client_waits_for_no_line_end(home: Path) -> None:
    with met(home) as (client, connection):
        client.say(b"GET / HTTP/1.1\r\n")
        assert received(connection, 16) == b"GET / HTTP/1.1\r\n"
        connection.sendall(b"\x81\x02")
        assert client.stdout.read(2) == b"\x81\x02"


def filled(send: Callable[[int], int]) -> int:
    """Return how many bytes can be sent until the receiver blocks. `send` gets the number of bytes sent before."""
    sent = 0

    def is_stuck() -> bool:
        nonlocal sent
        before = sent
        try:
            while True:
                sent += send(sent)
        except BlockingIOError:
            return sent == before

    wait_until(is_stuck, meanwhile=lambda: time.sleep(0.1))
    return sent


def test_a_client_that_does_not_read_is_felt_by_the_server_and_loses_nothing(home: Path) -> None:
    line = b"x" * 1023 + b"\n"
    with met(home) as (client, connection):
        connection.setblocking(False)
        sent = filled(lambda sent: connection.send(line[sent % 1024 :]))
        assert sent < 4 << 20
        assert memory(client.pid) <= MOST_MEMORY
        connection.setblocking(True)
        connection.sendall(line[sent % 1024 :] if sent % 1024 else b"")
        connection.shutdown(socket.SHUT_WR)
        heard = client.stdout.read()
        assert heard == line * -(-sent // 1024)
        assert client.ended() == 0


def test_a_server_that_does_not_read_is_felt_by_the_client(home: Path) -> None:
    with met(home) as (client, connection):
        fd = client.stdin.fileno()
        os.set_blocking(fd, False)
        sent = filled(lambda _: os.write(fd, b"x" * 1024))
        assert sent < 4 << 20
        connection.sendall(b"{}\n")  # the other direction still works
        assert client.stdout.readline() == b"{}\n"
        client.stdin.close()
        received(connection, sent)
        assert connection.recv(1) == b""


@pytest.mark.parametrize("kind", ["pipe", "socket", "pty"])
def test_descriptors_of_the_client_keep_their_flags(home: Path, kind: str) -> None:
    if kind == "pipe":
        (inner_in, outer_in), (outer_out, inner_out) = os.pipe(), os.pipe()
    elif kind == "pty":
        outer_in, inner_in = os.openpty()
        outer_out, inner_out = outer_in, inner_in
    else:
        ours, theirs = socket.socketpair()
        outer_in = outer_out = ours.detach()
        inner_in = inner_out = theirs.detach()
    ends = [outer_in, outer_out, inner_in, inner_out]
    before = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in ends]
    try:
        with listening(home) as server, proxy(home, stdin=inner_in, stdout=inner_out) as client:
            connection, _ = server.greeted()
            os.write(outer_in, b"{}\n")
            assert received(connection, 3) == b"{}\n"
            connection.sendall(b"[]\n")
            shown = b""
            while b"]" not in shown:  # a terminal echoes
                shown += os.read(outer_out, 100)
            assert [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in ends] == before
            assert client.process.poll() is None
    finally:
        for fd in set(ends):
            os.close(fd)


# --- ends
def said_by(client: Proxy) -> tuple[bytes, bytes]:
    """Return the bytes that an ended proxy has left in its pipes, while its stdin is still open."""
    return client.stdout.read(), client.stderr.read()


def test_a_server_that_is_killed_in_the_middle_of_a_line_leaves_whole_lines_only(home: Path) -> None:
    with met(home) as (client, connection):
        connection.sendall(b'{"a":1}\n{"b":')
        connection.close()  # the system does this for a killed process
        assert client.ended() == 1
        assert said_by(client) == (b'{"a":1}\n', DIED)


def test_a_server_that_is_killed_with_unread_input_is_no_other_case(home: Path) -> None:
    with met(home) as (client, connection):
        client.say(b"x" * 1000)
        received(connection, 1)
        connection.sendall(b"{}\n")
        connection.close()
        assert client.ended() == 1
        assert said_by(client) == (b"{}\n", DIED)


def test_what_a_server_says_before_it_ends_in_order_is_passed_on(home: Path) -> None:
    with met(home) as (client, connection):
        connection.sendall(b'{"a":1}\nlast words')
        connection.shutdown(socket.SHUT_WR)
        assert client.ended() == 0
        assert said_by(client) == (b'{"a":1}\nlast words', b"")


def test_what_a_server_says_after_its_client_has_ended_is_passed_on(home: Path) -> None:
    with met(home) as (client, connection):
        client.stdin.write(b"bye\n")
        client.stdin.close()
        assert received(connection, 4) == b"bye\n"
        assert connection.recv(1) == b""
        connection.sendall(b"so long\n")
        connection.close()
        assert client.stdout.read() == b"so long\n"
        assert client.ended() == 0


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_nobody_reads_any_more(home: Path, kind: str) -> None:
    ours, theirs = socket.socketpair() if kind == "socket" else (None, None)
    stdout = subprocess.PIPE if theirs is None else theirs.fileno()
    with met(home, stdout=stdout) as (client, connection):
        if ours is None or theirs is None:
            client.stdout.close()
        else:
            theirs.close()
            ours.close()
        assert client.ended() == 0  # the system reports it, without a write
        assert connection.recv(1) == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_proxy_that_is_ended_is_gone_for_the_server(home: Path, number: signal.Signals) -> None:
    with met(home) as (client, connection):
        connection.sendall(b"{}\n")
        client.stdout.readline()
        client.process.send_signal(number)
        assert connection.recv(1) == b""
        assert client.ended() == (-signal.SIGKILL if number == signal.SIGKILL else 0)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_others(home: Path, closed: str) -> None:
    command = ("bash", "-c", f'exec "$@" {closed}', "bash", SCRIPT, "proxy")
    with met(home, command=command) as (client, connection):
        if "<" in closed:
            assert connection.recv(1) == b""
        if ">&- " in f"{closed} ".replace("2>&-", ""):
            connection.sendall(b"{}\n")
        connection.close() if "<" in closed else connection.shutdown(socket.SHUT_WR)
        assert client.ended() == 0


# --- no server available
def silent(connection: socket.socket) -> None:
    """Answer nothing."""


def says(answer: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(answer)


@pytest.mark.parametrize(
    ("behaves", "why"),
    [
        (silent, "the server there does not answer within 2 s"),
        (socket.socket.close, "the server there closes the connection"),
        (says(NO), "no place is left"),
        (
            says(b'{"preface":2,"ok":true}\n'),
            "the server there is of a version that does not understand this one",
        ),
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "what listens there is no server of this kind"),
    ],
    ids=["silent", "closes", "refuses", "another version", "another server"],
)
def test_where_no_server_serves_it_the_client_is_served_alone(
    home: Path, behaves: Callable[[socket.socket], None], why: str
) -> None:
    accepted: list[socket.socket] = []
    with listening(home) as server:

        def answer() -> None:
            while True:
                try:
                    accepted.append(server.accept())
                except OSError:
                    return
                behaves(accepted[-1])

        threading.Thread(target=answer, daemon=True).start()
        with (
            proxy(home, "--no-start") as refused,
            Piped(home.parent, "proxy", "-c", 'model="mine"') as client,
        ):
            client.initialize()
            assert client.call("newConversation")["model"] == "mine"
            assert client.log.read_text() == f"app-server: this client is served alone: {why}\n"
            client.leave()
            assert client.status() == 0
            assert refused.process.communicate(b"", PATIENCE) == (b"", f"app-server: {why}\n".encode())
            assert refused.process.returncode == 1
        server.socket.shutdown(socket.SHUT_RDWR)
    for each in accepted:
        each.close()


def test_a_server_that_is_being_started_may_take_longer(home: Path) -> None:
    """A service manager also accepts connections for a server that it has just begun to start."""
    with listening(home) as server, proxy(home, "--no-start") as client:
        lock = hold(place_of_home(str(home)).startup_lock)
        connection = server.accept()
        time.sleep(ANSWERS_WITHIN + 0.5)
        assert client.process.poll() is None
        connection.sendall(YES)
        os.close(lock)
        connection.sendall(b"{}\n")
        assert client.stdout.readline() == b"{}\n"


def test_without_a_server_none_is_started_against_the_wish_of_the_user(home: Path) -> None:
    with proxy(home, "--no-start") as client:
        assert client.process.communicate(b"", PATIENCE) == (
            b"",
            b"app-server: no shared server is running\n",
        )
        assert client.process.returncode == 1
    assert list(home.iterdir()) == []


def test_a_client_alone_speaks_the_same_api(home: Path) -> None:
    with listening(home) as server, proxy(home, "acp") as client:
        server.greeted(NO)
        ask = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        heard, _ = client.process.communicate(json.dumps(ask).encode() + b"\n", PATIENCE)
        assert json.loads(heard)["result"]["protocolVersion"] == 1
