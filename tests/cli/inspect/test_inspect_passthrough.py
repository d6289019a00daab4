"""`app-server inspect` passes everything through unchanged: bytes, ends, signals and exit statuses."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import httpx2
import pytest

from app_server.cli.dispatch import main
from app_server.cli.inspect import inspect_command
from app_server_protocol.encoding import Json
from tests.cli.inspect.recorded_turn import TURN_WITH_APPROVAL, as_file
from tests.support.inspected import BROKEN
from tests.support.program import SCRIPT
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.process

ECHO = "import os\nwhile data := os.read(0, 1 << 16):\n    os.write(1, data)\n"
HUGE = b"x" * (3 << 20)


def inspected(record: Path, *server: str) -> Sequence[str]:
    return (SCRIPT, "inspect", "--record", str(record), "--", *server)


def inspect(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = (SCRIPT, "inspect", *words)
    return subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE, check=False)


def run(record: Path, *server: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return inspect("--record", str(record), "--", *server, given=given)


def recorded(record: Path) -> tuple[Json, list[Json]]:
    """Return the head of a session file, and its lines."""
    head, *lines = [json.loads(line) for line in record.read_text().splitlines()]
    return head, lines


def of(lines: Sequence[Mapping[str, Json]], source: str) -> list[Json]:
    return [line for line in lines if line["from"] == source]


def test_bytes_pass_unchanged_and_all_are_recorded(tmp_path: Path) -> None:
    given = b'{"id":1, "method" : "x"}\r\nno json \xff\xfe\n\n' + HUGE + b"\nhalf"
    done = run(tmp_path / "record", sys.executable, "-c", ECHO, given=given)
    assert (done.returncode, done.stdout, done.stderr) == (0, given, b"")
    head, lines = recorded(tmp_path / "record")
    assert head["format"] == "app-server-session"
    assert head["server"] == [sys.executable, "-c", ECHO]
    for source in ("client", "server"):
        said = of(lines, source)
        assert [line["size"] for line in said] == [25, 10, 0, len(HUGE), 4]
        assert said[0]["message"] == {"id": 1, "method": "x"}
        assert said[1]["base64"] == "bm8ganNvbiD//g=="
        assert said[3]["text"] == HUGE.decode()
        assert said[4] == {"at": said[4]["at"], "from": source, "size": 4, "unfinished": True, "text": "half"}
    assert [line["event"]["event"] for line in of(lines, "inspector")] == [
        "started",
        *["ended"] * 3,
        "exited",
    ]


@pytest.mark.parametrize("planted", ["nothing", "a readable file", "a link", "a link to nothing"])
def test_a_recording_is_the_users_alone_and_follows_no_link(tmp_path: Path, planted: str) -> None:
    record, other = tmp_path / "record", tmp_path / "other"
    other.write_text("mine")
    if planted == "a readable file":
        record.write_text("old")
        record.chmod(0o644)
    elif planted != "nothing":
        record.symlink_to(other if planted == "a link" else tmp_path / "missing")
    mask = os.umask(0)
    try:
        run(record, sys.executable, "-c", ECHO, given=b"hello\n")
    finally:
        os.umask(mask)
    assert [line["text"] for line in of(recorded(record)[1], "client") if "text" in line] == ["hello"]
    assert stat.S_IMODE(record.lstat().st_mode) == 0o600
    assert other.read_text() == "mine"
    assert {each.name for each in tmp_path.iterdir()} == {"record", "other"}


def test_a_recording_takes_the_place_of_no_device_or_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name, complaint in (
        ("pipe", b"not a regular file"),
        ("link", b"not a regular file"),
        ("x/y", b"No such"),
    ):
        done = run(tmp_path / name, sys.executable, "-c", ECHO)
        assert done.returncode == 2
        assert complaint in done.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_the_file_with_the_address_is_the_users_alone_and_follows_no_link(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="no extra `inspect`")
    url, other = tmp_path / "url", tmp_path / "other"
    other.write_text("mine")
    for name in ("url", "url.new"):
        (tmp_path / name).symlink_to(other)
    command = (SCRIPT, "inspect", "--url-file", str(url), "--", sys.executable, "-c", ECHO)
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, umask=0)
    wait_until(lambda: not url.is_symlink())
    assert stat.S_IMODE(url.lstat().st_mode) == 0o600
    assert url.read_text().startswith("http://127.0.0.1:")
    assert other.read_text() == "mine"
    running.communicate(timeout=PATIENCE)
    assert running.returncode == 0


def test_who_looks_at_a_file_leaves_at_once_though_its_page_is_open(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="no extra `inspect`")
    url = tmp_path / "url"
    (tmp_path / "session").write_text(as_file(TURN_WITH_APPROVAL))
    command = (SCRIPT, "inspect", "--open", str(tmp_path / "session"), "--url-file", str(url))
    running = subprocess.Popen(command, stderr=subprocess.PIPE)
    wait_until(url.exists)
    with httpx2.Client(base_url=url.read_text().strip(), trust_env=False, timeout=PATIENCE) as page:
        view = page.post("sessions/0/views", json={}).json()["view"]
        with page.stream("GET", f"sessions/0/views/{view}/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=PATIENCE)[1].decode()
    assert (running.returncode, said.count("\n")) == (130, 1), "it does not wait until the page has left"


def test_words_after_the_dashes_are_the_servers(tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:])"
    done = run(tmp_path / "record", sys.executable, "-c", code, "app-server", "--", "--page")
    assert done.stdout == b"['app-server', '--', '--page']\n"


def test_stderr_and_the_exit_status_are_passed_on(tmp_path: Path) -> None:
    done = run(tmp_path / "record", sys.executable, "-c", "import sys; sys.stderr.write('oh'); sys.exit(7)")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"oh")
    _, lines = recorded(tmp_path / "record")
    assert [line["text"] for line in of(lines, "stderr")] == ["oh"]
    assert lines[-1]["event"] == {"event": "exited", "status": 7}


def test_a_server_that_a_signal_ends_ends_the_inspector_with_it(tmp_path: Path) -> None:
    done = run(tmp_path / "record", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == -signal.SIGKILL
    assert recorded(tmp_path / "record")[1][-1]["event"] == {"event": "exited", "status": -9}


def told(what: str, advice: str) -> bytes:
    return f"app-server inspect: {what}\n→ {advice}\n".encode()


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    done = run(tmp_path / "record", str(missing))
    what = f"cannot start {missing}: No such file or directory"
    assert (done.returncode, done.stderr) == (
        127,
        told(what, "behind `--` is the command that starts the server"),
    )


def test_a_replay_says_where_to_look(tmp_path: Path) -> None:
    run(tmp_path / "record", sys.executable, "-c", ECHO, given=b'{"id":1,"method":"x"}\n')
    again = tmp_path / "again"
    replayed = ("--replay", str(tmp_path / "record"), "--record")
    done = inspect(*replayed, str(again), "--", "true")
    assert done.returncode == 1
    assert done.stderr.endswith(
        told("not as recorded", f"`app-server inspect --open {again}` shows what went on")
    )
    nowhere = inspect(*replayed, str(again / "below"), "--", "true")
    what = f"cannot write {again / 'below'}: Not a directory"
    assert (nowhere.returncode, nowhere.stderr) == (2, told(what, "name a file in a folder of yours"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_reach_the_server(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import os, signal\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {{{int(number)}}})\n"  # sigwait gets it
        "os.write(1, b'ready\\n')\n"
        f"signal.sigwait({{{int(number)}}})\n"
        "os.write(1, b'caught')\n"
        "os._exit(3)\n"
    )
    process = subprocess.Popen(
        inspected(tmp_path / "record", sys.executable, "-c", code),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    rest, _ = process.communicate(timeout=PATIENCE)
    assert (rest, process.returncode) == (b"caught", 3)


def test_a_client_that_reads_no_more_is_noticed_by_the_server(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "try:\n    while True: os.write(1, b'x' * 65536)\n"
        "except BrokenPipeError: sys.exit(5)\n"
    )
    process = subprocess.Popen(
        inspected(tmp_path / "record", sys.executable, "-c", code), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(PATIENCE) == 5


def test_a_server_that_reads_no_more_is_noticed_by_the_client(tmp_path: Path) -> None:
    """It also inherits the descriptors that its client passes on."""
    reading, writing = os.pipe()
    code = f"import os; os.close(0); os.write(1, b'closed\\n'); os.read({reading}, 1)"
    process = subprocess.Popen(
        inspected(tmp_path / "record", sys.executable, "-c", code),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(reading,),
    )
    os.close(reading)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"closed\n"
    with pytest.raises(BrokenPipeError):
        write_until_it_fails(process.stdin)
    os.close(writing)
    process.stdin.close()
    process.stdout.close()
    assert process.wait(PATIENCE) == 0


def test_a_recorded_client_is_played_again(tmp_path: Path) -> None:
    """The server breaks order rules, and the replay reports them."""
    server = (sys.executable, BROKEN)
    asked = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "x", "version": "1"}}}
    run(tmp_path / "record", *server, given=json.dumps(asked).encode() + b"\n")
    replayed = ("--replay", str(tmp_path / "record"), "--record", str(tmp_path / "again"))
    done = inspect(*replayed, "--", *server)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"rule_10_nothing_follows_the_end_of_a_turn" in done.stderr
    first, again = (
        [line.get("message") for line in of(recorded(tmp_path / name)[1], "server")]
        for name in ("record", "again")
    )
    assert first == again


def test_a_file_that_is_no_session_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello\n")
    for name, complaint in (("file", b"the first line must be"), ("missing", b"cannot open")):
        done = inspect("--replay", str(tmp_path / name), "--", "server")
        assert done.returncode == 2
        assert complaint in done.stderr


def test_a_page_without_its_extra_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspect_command, "page_is_installed", lambda: False)
    assert main(["inspect", "--", "server"]) == 2
    advice = (
        "pip install 'app-server-agent[inspect]' where app-server is installed; `--record FILE` works without"
    )
    assert capfd.readouterr().err.encode() == told("the page needs Starlette and uvicorn", advice)
    assert main(["inspect"]) == 2
    advice = "as in `app-server inspect -- SERVER ARG...`"
    assert capfd.readouterr().err.encode() == told("no server was named", advice)


def write_until_it_fails(pipe: IO[bytes]) -> None:
    while True:
        pipe.write(b"x\n")
