"""A server that clients share: its place, how it is started and found, and which clients may connect."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from app_server.engine.support.socket_paths import FOLDER, LONGEST_ADDRESS
from app_server.server.daemon.daemon_command import systemd_unit
from app_server.server.daemon.shutdown import INTERRUPTS_WITHIN
from tests.support.pipes import INITIALIZE as CLIENT
from tests.support.pipes import PATIENCE, Piped
from tests.support.processes import alive, runs
from tests.support.program import PYTHON, SCRIPT
from tests.support.shared import INITIALIZE, Running, SharedHome, answer_of, connect, is_closed, shared_homes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

NOBODY = 65534


@pytest.fixture
def shared(short_folder: Path) -> Iterator[SharedHome]:
    with shared_homes(short_folder) as home:
        yield home


@pytest.fixture
def outside() -> Iterator[Path]:
    """Yield a private folder of the user in which no command may write."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/var/tmp") as folder:
        yield Path(folder)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.mark.parametrize("where", ["/tmp", "$TMPDIR", "the workspace", "a writable root"])
def test_where_commands_may_write_nobody_listens(shared: SharedHome, outside: Path, where: str) -> None:
    """A command could replace the server's socket by one of its own."""
    folder = shared.root
    if where != "/tmp":
        folder = outside / "run"
        folder.mkdir(0o700)
    if where == "$TMPDIR":
        shared.environment["TMPDIR"] = str(outside)
    if where == "the workspace":
        shared.root = outside
    if where == "a writable root":
        roots = f'[sandbox_workspace_write]\nwritable_roots = ["{outside}"]\n'
        (shared.home / "config.toml").write_text(f'sandbox_mode = "workspace-write"\n{roots}')
    with shared.server(f"unix://{folder}/s") as server:
        status, said = server.ended()
    assert status == 1
    assert said.startswith(f"app-server: cannot listen on {folder}/s: commands may write in ")
    assert not (folder / "s").exists()


WRONG_DESCRIPTORS = [
    (["--startup=x"], {}, "expected two open descriptors in --startup, got 'x'"),
    (["--startup=3,4"], {}, "expected two open descriptors"),
    (["--startup=1"], {}, "expected two open descriptors"),
    ([], {"LISTEN_FDS": "1"}, "descriptor 3 of the service manager cannot be used"),
    ([], {"LISTEN_FDS": "9" * 400}, "descriptor 3 of the service manager cannot be used"),
]


@pytest.mark.parametrize(("words", "environment", "why"), WRONG_DESCRIPTORS)
def test_descriptors_that_are_none_are_a_mistake(
    shared: SharedHome, words: list[str], environment: dict[str, str], why: str
) -> None:
    given = 'LISTEN_PID=$$ exec "$0" "$@"' if environment else 'exec "$0" "$@"'
    done = subprocess.run(
        ("sh", "-c", given, SCRIPT, "--listen=unix://", *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**shared.environment, **environment},
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert why in done.stderr


def test_a_log_that_is_no_file_holds_up_nobody(shared: SharedHome) -> None:
    shared.place.make_ready()
    os.mkfifo(shared.place.log)
    status, _, said = shared.run("daemon", "start")
    assert status == 1
    assert "it is no regular file" in said


# --- one server at a place
def test_a_proxy_starts_a_server_and_others_find_it(shared: SharedHome) -> None:
    with shared.client() as first, shared.client() as second:
        first.initialize()
        second.initialize()
        status = shared.status()
        assert [each["name"] for each in status["clients"]] == ["tests", "tests"]
        assert {each["pid"] for each in status["clients"]} == {first.process.pid, second.process.pid}
        assert shared.servers() == {status["pid"]}
        assert first.log.read_text() == second.log.read_text() == ""
    assert (mode(shared.place.socket), mode(shared.place.folder)) == (0o600, 0o700)
    for path in (shared.place.log, shared.place.server_lock, shared.place.startup_lock, shared.place.info):
        assert mode(path) == 0o600


def test_a_second_server_names_the_first_and_ends(shared: SharedHome, outside: Path) -> None:
    with shared.server() as first:
        first.listening_on(1)
        with shared.server() as second:
            status, said = second.ended()
        assert status == 1
        assert said.startswith(f"app-server: a server (pid {first.pid}, ")
        assert said.endswith(f") already listens on {shared.place.socket}\n")
        with shared.server(f"unix://{outside}/other") as other:  # another socket is allowed
            other.listening_on(1)
            with shared.server(f"unix://{outside}/other") as third:
                assert third.ended()[0] == 1


def test_a_server_follows_one_that_was_killed(shared: SharedHome) -> None:
    with shared.server() as first:
        first.listening_on(1)
        inode = os.lstat(shared.place.socket).st_ino
        first.process.kill()
        first.process.wait()
        assert os.path.lexists(shared.place.socket)
        with shared.server() as second:
            assert second.listening_on(1) == [f"unix://{shared.place.socket}"]
            assert os.lstat(shared.place.socket).st_ino != inode
            with shared.connect() as client:
                assert "result" in answer_of(client)


def test_what_lies_at_the_place_and_is_no_socket_is_left_alone(shared: SharedHome) -> None:
    shared.place.make_ready()
    Path(shared.place.socket).write_text("mine")
    with shared.server() as server:
        assert server.ended() == (1, f"app-server: {shared.place.socket} is no socket\n")
    assert Path(shared.place.socket).read_text() == "mine"


def test_a_socket_of_another_program_is_not_taken_over(shared: SharedHome, outside: Path) -> None:
    path = outside / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with shared.server(f"unix://{path}") as server:
            assert server.ended() == (1, f"app-server: another program listens on {path}\n")
        connect(str(path)).close()


def test_a_folder_that_is_not_the_users_own_is_refused(shared: SharedHome) -> None:
    folder = shared.home / FOLDER
    (shared.root / "elsewhere").mkdir()
    folder.symlink_to(shared.root / "elsewhere")
    with shared.server() as server:
        assert server.ended() == (1, f"app-server: {folder} is a link\n")
    with shared.client() as client:  # and the proxy serves alone
        client.initialize()
        assert client.log.read_text() == (
            f"app-server: this client is served alone: no shared server could be started: {folder} is a link\n"
        )


@pytest.mark.parametrize("runtime", [True, False])
def test_a_home_whose_path_is_too_long_for_a_socket(short_folder: Path, runtime: bool) -> None:
    with shared_homes(short_folder) as outer:
        shared = SharedHome(outer.root, outer.root / ("h" * 200))
        where = Path(f"/tmp/app-server-{os.geteuid()}")
        if runtime:
            where = outer.root / "run" / "app-server"
            where.parent.mkdir()
            shared.environment["XDG_RUNTIME_DIR"] = str(where.parent)
        with shared.server() as server:
            server.listening_on(1)
            real = Path(os.readlink(shared.place.socket))
            assert real.parent == where
            assert (mode(where), mode(real)) == (0o700, 0o600)
            assert len(str(real)) <= LONGEST_ADDRESS
            with shared.client("proxy", "--no-start") as client:
                client.initialize()
            server.process.send_signal(signal.SIGTERM)
            assert server.ended()[0] == 0
        assert not real.exists()
        assert not os.path.lexists(shared.place.socket)
        with shared.client() as client:  # and a proxy starts one there
            client.initialize()
            assert client.log.read_text() == ""


def test_clients_of_codex_find_the_socket_by_a_link(shared: SharedHome) -> None:
    assert shared.place.reference is not None
    with shared.server() as server:
        server.listening_on(1)
        assert os.readlink(shared.place.reference) == "app-server.sock"
        with connect(shared.place.reference) as client:
            assert "result" in answer_of(client)
        server.process.send_signal(signal.SIGTERM)
        server.ended()
    assert not os.path.lexists(shared.place.reference)


@pytest.mark.parametrize("as_link", [True, False])
def test_a_living_server_of_codex_keeps_its_name(shared: SharedHome, as_link: bool) -> None:
    assert shared.place.reference is not None
    shared.place.make_ready()
    path = str(shared.root / "theirs") if as_link else shared.place.reference
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(path)
        theirs.listen()
        if as_link:
            os.symlink(path, shared.place.reference)
        before = os.lstat(shared.place.reference).st_ino
        with shared.server() as server:
            server.listening_on(1)
            assert os.lstat(shared.place.reference).st_ino == before
            with shared.client("proxy", "--no-start") as client:
                client.initialize()
            server.process.send_signal(signal.SIGTERM)
            server.ended()
        assert os.lstat(shared.place.reference).st_ino == before
        theirs.close()  # as if killed: its name is left
        with shared.server() as server:
            server.listening_on(1)
            assert os.readlink(shared.place.reference) == "app-server.sock"


def test_a_server_removes_no_socket_that_is_not_its_own_any_more(shared: SharedHome) -> None:
    with shared.server() as server:
        server.listening_on(1)
        os.unlink(shared.place.socket)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(shared.place.socket)
            server.process.send_signal(signal.SIGTERM)
            assert server.ended()[0] == 0
            assert os.path.lexists(shared.place.socket)


def test_several_addresses_each_with_a_client(shared: SharedHome, outside: Path) -> None:
    named = f"unix://{outside}/s"
    with shared.server("unix://", named, "ws://127.0.0.1:0") as server:
        first, second, third = server.listening_on(3)
        assert (first, second) == (f"unix://{shared.place.socket}", named)
        with shared.connect() as a, connect(f"{outside}/s") as b:
            assert "result" in answer_of(a)
            assert "result" in answer_of(b)
        port = int(third.rpartition(":")[2])
        shared.wait_until_loaded()
        with socket.create_connection(("127.0.0.1", port)) as web:
            web.sendall(f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert web.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(("127.0.0.1", port)) as plain:  # without HTTP there is no token
            plain.sendall(INITIALIZE)
            assert is_closed(plain)


def greeted_on_stdin(server: Running) -> IO[bytes]:
    stdin, stdout = server.process.stdin, server.process.stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(INITIALIZE)
    stdin.flush()
    assert "result" in json.loads(stdout.readline())
    return stdin


def test_stdin_and_a_socket_are_served_together(shared: SharedHome) -> None:
    with shared.server("stdio://", "unix://") as server:
        server.listening_on(1)
        stdin = greeted_on_stdin(server)
        with shared.connect() as client:
            assert "result" in answer_of(client)
            stdin.close()
            wait_until(lambda: len(shared.status()["clients"]) == 1)
            assert "result" in answer_of(client, b'{"id":2,"method":"getUserAgent"}\n')
        assert server.ended()[0] == 0  # it leaves with the last of its clients


def test_a_client_on_stdin_does_not_hold_up_the_end(shared: SharedHome) -> None:
    with shared.server("stdio://", "unix://") as server:
        server.listening_on(1)
        greeted_on_stdin(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(INTERRUPTS_WITHIN - 1) == 0


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("unix://relative", "a socket needs an absolute path"),
        ("tcp://127.0.0.1:1", "expected stdio://"),
        ("ws://0.0.0.0:1", "ssh -L"),
    ],
)
def test_other_addresses_are_refused(shared: SharedHome, address: str, why: str) -> None:
    with shared.server(address) as server:
        status, said = server.ended()
    assert status == 2
    assert why in said


def test_off_serves_nobody_until_it_is_ended(shared: SharedHome) -> None:
    with shared.server("off") as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) in (0, -signal.SIGTERM)  # also while it is being loaded
    assert not (shared.home / FOLDER).exists()


# --- which clients may connect
def require_python_for_others() -> None:
    """Skip the test if another user cannot run this Python, for example one in root's home."""
    if as_other_user("").returncode != 0:
        pytest.skip("another user cannot run this Python: install it where everybody can read it")


def as_other_user(code: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ("setpriv", f"--reuid={NOBODY}", "--clear-groups", sys.executable, "-I", "-c", code, *arguments)
    return subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE)


CONNECTS = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
try:
    connection.sendall(b'{}')
    print(connection.recv(1))
except OSError as error:
    print(b"")
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root: a process of another user"
)
def test_another_user_is_closed_without_a_byte(shared: SharedHome, outside: Path) -> None:
    require_python_for_others()
    with shared.server(f"unix://{outside}/s") as server:
        server.listening_on(1)
        os.chmod(outside, 0o755)
        os.chmod(f"{outside}/s", 0o777)  # as if somebody had opened it to all
        done = as_other_user(CONNECTS, f"{outside}/s")
        assert done.stdout == b"b''\n", done.stderr
        with connect(f"{outside}/s") as client:
            assert "result" in answer_of(client)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root: a process of another user"
)
def test_root_is_another_user_too(shared: SharedHome) -> None:
    """The check uses the credentials, whatever the file system allows root."""
    require_python_for_others()
    home = shared.root / "theirs"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    os.chmod(shared.root, 0o755)
    shared.environment["CODEX_HOME"] = str(home)
    command = ("setpriv", f"--reuid={NOBODY}", "--clear-groups", PYTHON, "-P", "-m", "app_server")
    with shared.server(command=command) as server:
        said = server.err.readline().decode()
        if "No module" in said or "Permission denied: " in said:
            pytest.skip("other users cannot read the installation")
        while not said.startswith("listening on "):
            assert "the sandbox probe failed" in said, said
            said = server.err.readline().decode()
        with connect(said.removeprefix("listening on unix://").strip()) as client:
            client.sendall(INITIALIZE)
            assert is_closed(client)


def test_a_server_knows_of_a_proxy_that_is_killed(shared: SharedHome) -> None:
    with shared.server() as server:
        server.listening_on(1)
        with shared.client() as stays, shared.client() as goes:
            stays.initialize()
            goes.initialize()
            goes.process.kill()
            wait_until(lambda: [each["pid"] for each in shared.status()["clients"]] == [stays.process.pid])
            assert stays.healthy()


def test_commands_and_watches_of_a_client_that_is_killed_end_and_those_of_others_go_on(
    shared: SharedHome,
) -> None:
    watched = shared.root / "watched"
    watched.mkdir()
    with shared.server() as server:
        server.listening_on(1)
        with shared.client() as stays, shared.client() as goes:
            pids = []
            for client in (stays, goes):
                client.call("initialize", {**CLIENT, "capabilities": {"experimentalApi": True}})
                client.call("fs/watch", {"watchId": "w", "path": str(watched)})
                pids.append(nap(client, shared.root / f"of {client.process.pid}"))
            before = watches(server.pid)
            assert len(before) in (0, 2)
            goes.process.kill()
            assert alive([pids[1]]) == []
            wait_until(lambda: watches(server.pid) == before[:1])
            assert runs(pids[0])
            (watched / "file").touch()
            while (told := stays.hear()).get("method") != "fs/changed":
                pass
            assert told["params"]["changedPaths"] == [str(watched / "file")]


def nap(client: Piped, told: Path) -> int:
    """Return the process id of a long command that the client began; the command writes it to a file."""
    params = {
        "command": ["sh", "-c", f"echo $$ > '{told}'; exec sleep 600"],
        "disableTimeout": True,
        "sandboxPolicy": {"type": "dangerFullAccess"},
    }
    request = {"id": "nap", "method": "command/exec", "params": params}
    client.write(json.dumps(request).encode() + b"\n")
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
    return int(told.read_text())


def watches(pid: int) -> list[str]:
    """Return the descriptors by which a process is notified of file changes; none if they may not be read."""
    if os.geteuid() != 0:  # only root may read them
        return []
    links = (os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if os.path.lexists(each))
    return [link for link in links if "inotify" in link]


# --- which clients use it
def test_a_plain_command_is_a_proxy_where_the_user_says_so(shared: SharedHome) -> None:
    shared.configure("app_server.shared = true\n")
    with shared.client("-c", "model=mine") as client:
        client.initialize()
        assert client.call("newConversation")["model"] == "mine"
        assert [each["pid"] for each in shared.status()["clients"]] == [client.process.pid]
    with shared.client("--stdio") as alone:
        alone.initialize()
        assert shared.status()["clients"] == []


@pytest.mark.parametrize("how", ["a project", "CI"])
def test_a_plain_command_is_a_server_of_its_own_where_others_say_so(shared: SharedHome, how: str) -> None:
    if how == "CI":
        shared.configure("app_server.shared = true\n")
        shared.environment["CI"] = "true"
    else:
        (shared.root / "workspace" / ".codex").mkdir(parents=True)
        (shared.root / "workspace" / ".codex" / "config.toml").write_text("app_server.shared = true\n")
    with shared.client("app-server") as client:
        client.initialize()
        assert shared.servers() == set()
    assert not (shared.home / FOLDER).exists()


# --- the daemon
def test_the_daemon_says_what_it_did(shared: SharedHome) -> None:
    assert shared.daemon("version")[0] == 1
    assert shared.daemon("status", "--json")[1]["status"] == "notRunning"
    status, started = shared.daemon("start", "-c", "model=ours")
    assert (status, started["status"], started["socketPath"]) == (0, "started", shared.place.socket)
    assert started["cliVersion"] == started["appServerVersion"]
    assert shared.daemon("start") == (0, {**started, "status": "alreadyRunning"})
    assert shared.daemon("version") == (0, {**started, "status": "running"})
    with shared.client(
        "proxy", "-c", "model=theirs"
    ) as client:  # the options of the server's start take precedence
        client.initialize()
        assert client.call("newConversation")["model"] == "ours"
        status, out, _ = shared.run("daemon", "status")
        assert status == 0
        assert f"tests, pid {client.process.pid}, since " in out
        restarted = shared.daemon("restart")[1]
        assert restarted["pid"] != started["pid"]
        assert client.status() == 0  # the server ended its connection in good order
    assert shared.daemon("stop")[1]["status"] == "stopped"
    assert shared.servers() == set()
    none = {"status": "notRunning", "socketPath": shared.place.socket, "cliVersion": started["cliVersion"]}
    assert shared.daemon("stop") == (0, none)


@pytest.mark.parametrize("words", [("stop",), ("stop", "--now"), ("status",), ("restart",)])
def test_the_daemon_names_a_server_that_does_not_answer(shared: SharedHome, words: tuple[str, ...]) -> None:
    with shared.server() as running:
        running.listening_on(1)
        running.process.send_signal(signal.SIGSTOP)
        status, out, err = shared.run("daemon", *words)
        assert (status, out) == (1, "")
        said = "the server there does not answer within 2 s: it hangs or is stopped "
        assert err.startswith(f"app-server daemon {words[0]}: {said}(pid {running.pid}, ")
        assert f"; `kill -9 {running.pid}` ends it" in err
        assert running.process.poll() is None


def test_a_start_that_fails_shows_the_last_line_of_the_log(shared: SharedHome) -> None:
    shared.place.make_ready()
    Path(shared.place.socket).mkdir()
    status, out, err = shared.run("daemon", "start")
    assert (status, out) == (1, "")
    assert err.startswith(f"app-server daemon start: {shared.place.socket} is no socket\n")


def test_a_server_has_nothing_of_its_starter(shared: SharedHome) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    process = subprocess.Popen(
        (SCRIPT, "daemon", "start", "--json"),
        env={**shared.environment, "SECRET": "of the starter", "LC_ALL": "C.UTF-8"},
        cwd=shared.root,
        pass_fds=[writing],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    pipes = [f"pipe:[{os.fstat(fd).st_ino}]" for fd in (writing, process.stdout.fileno())]
    os.close(writing)
    out, _ = process.communicate(timeout=PATIENCE)
    assert os.read(reading, 1) == b""  # the other end is closed everywhere
    os.close(reading)
    pid = json.loads(out)["pid"]
    proc = Path(f"/proc/{pid}")
    assert os.readlink(proc / "cwd") == "/"
    stat_fields = (proc / "stat").read_text().rpartition(")")[2].split()
    session, terminal = int(stat_fields[3]), int(stat_fields[4])
    assert session != process.pid
    assert terminal == 0
    environment = (proc / "environ").read_bytes()
    assert b"SECRET" not in environment
    assert b"LC_ALL=C.UTF-8" in environment
    if os.geteuid() == 0:  # only root may read it
        opened = {os.readlink(path) for path in (proc / "fd").iterdir()}
        assert opened & {shared.place.startup_lock, *pipes} == set()
        assert shared.place.server_lock in opened


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="needs systemd-socket-activate")
def test_a_service_manager_may_listen(shared: SharedHome) -> None:
    shared.place.make_ready()
    unit = systemd_unit((SCRIPT, "--listen", "unix://"), str(shared.home), shared.place.socket)
    listen = next(line for line in unit.splitlines() if line.startswith("ListenStream=")).partition("=")[2]
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).partition("=")[2]
    passed = [word for name in shared.environment for word in ("-E", name)]
    activate = ("systemd-socket-activate", "-l", listen, *passed, *command.split())
    with subprocess.Popen(activate, env=shared.environment, stderr=subprocess.PIPE) as manager:
        try:
            assert manager.stderr is not None
            # The file of the socket exists before clients can connect to it.
            assert manager.stderr.readline().startswith(b"Listening on ")
            with shared.connect() as first:
                assert "result" in answer_of(first)
            with shared.client("proxy", "--no-start") as client:
                client.initialize()
                assert shared.status()["pid"] == manager.pid
            manager.send_signal(signal.SIGTERM)
            assert manager.wait(PATIENCE) == 0
            assert os.path.exists(listen)  # the file belongs to the manager
        finally:
            manager.kill()
