"""How the server ends: in time, with status 0, with everything stored and no child left; and what it starts on."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pipes import INITIALIZE, Piped, alive
from tests.support.waiting import wait_until
from tests.support.world import PATH, SCRIPT

WITHIN = 2.0
"""What clients grant before they kill; a machine with much else to do gets more."""
SLACK = 5.0

ENDS = ["eof", "mid-line", "SIGTERM", "SIGINT", "SIGHUP"]


@pytest.fixture(autouse=True)
def signals_count() -> Iterator[None]:
    """Under nohup, or in a shell's background, a child is born deaf to SIGHUP or SIGINT, until the server has set its
    own handler.
    """
    deaf = [number for number in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(number) is signal.SIG_IGN]
    for number in deaf:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in deaf:
        signal.signal(number, signal.SIG_IGN)


def depart(server: Piped, how: str) -> None:
    match how:
        case "eof":
            server.leave()
        case "mid-line":
            server.write(b'{"id":1,"method":"getUserAg')
            server.leave()
        case _:
            server.tell(signal.Signals[how])


@pytest.mark.parametrize("how", ENDS)
def test_it_leaves_with_a_conversation_stored_and_no_child(how: str, tmp_path: Path) -> None:
    with Piped(tmp_path) as server:
        server.initialize()
        opened = server.call("newConversation", {"cwd": str(server.workspace)})
        server.call(
            "execOneOffCommand", {"command": ["true"], "sandboxPolicy": {"mode": "danger-full-access"}}
        )
        children = server.descendants()
        depart(server, how)
        assert server.status(WITHIN + SLACK) == 0
        assert alive(children) == []
        first = Path(opened["rolloutPath"]).read_text().splitlines()[0]
        assert json.loads(first)["type"] == "session_meta"


@pytest.mark.parametrize("how", ENDS)
def test_it_leaves_before_anything_was_said(how: str, tmp_path: Path) -> None:
    with Piped(tmp_path) as server:
        depart(server, how)
        status = server.status(WITHIN + SLACK)
        # A signal may come before the first line of the program: then Python itself ends it, in its own way.
        assert status == 0 or how.startswith("SIG")


def test_it_takes_a_one_off_command_along(tmp_path: Path) -> None:
    with Piped(tmp_path) as server:
        server.initialize()
        command = ["sh", "-c", "sleep 1000 & echo $$ > pid; sleep 1000"]
        params = {"command": command, "cwd": str(server.workspace), "timeoutMs": 1_000_000}
        params["sandboxPolicy"] = {"mode": "danger-full-access"}
        server.write(json.dumps({"id": 1, "method": "execOneOffCommand", "params": params}).encode() + b"\n")
        wait_until(lambda: (server.workspace / "pid").exists())
        children = server.descendants()
        assert len(children) >= 3
        server.leave()
        assert server.status(WITHIN + SLACK) == 0
        assert alive(children) == []


def test_it_leaves_when_nobody_reads_any_more(tmp_path: Path) -> None:
    """At the first answer that cannot be written."""
    process = subprocess.Popen(
        (SCRIPT,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(tmp_path),
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(
            json.dumps({"id": 1, "method": "initialize", "params": INITIALIZE}).encode() + b"\n"
        )
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        try:
            while process.poll() is None:
                process.stdin.write(b'{"id":2,"method":"getUserAgent"}\n')
                process.stdin.flush()
        except BrokenPipeError:
            pass
        assert process.wait(WITHIN + SLACK) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("stdin", ["file", "null", "closed"])
def test_stdin_may_be_anything_that_ends(stdin: str, tmp_path: Path) -> None:
    asked = tmp_path / "asked.jsonl"
    lines = [{"id": 1, "method": "initialize", "params": INITIALIZE}, {"id": 2, "method": "getUserAgent"}]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {"file": str(asked), "null": "/dev/null", "closed": ""}[stdin]
    command = f'exec "{SCRIPT}" ' + (f'< "{source}"' if source else "<&-")
    done = subprocess.run(
        ("sh", "-c", command), capture_output=True, timeout=30, check=False, env=environment(tmp_path)
    )
    answers = [json.loads(line)["id"] for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert answers == ([1, 2] if stdin == "file" else [])


def test_a_log_that_nobody_reads_holds_up_nothing(tmp_path: Path) -> None:
    """A pipe takes 64 KiB; what does not fit is not worth waiting for."""
    read, write = os.pipe()
    try:
        with os.fdopen(write, "wb") as stderr:
            server = Piped(tmp_path, environment={"APP_SERVER_LOG": "debug"}, stderr=stderr)
        with server:
            server.initialize()
            answers = server.answers_to(b"no json\n" * 3000)
            assert len(answers) == 3000
            assert server.healthy(10)
            server.leave()
            assert server.status(WITHIN + SLACK) == 0
    finally:
        os.close(read)


def test_a_log_that_is_closed_holds_up_nothing(tmp_path: Path) -> None:
    asked = json.dumps({"id": 1, "method": "initialize", "params": INITIALIZE}) + "\nno json\n"
    asked += '{"id":2,"method":"getUserAgent"}\n'
    done = subprocess.run(
        ("sh", "-c", f'exec "{SCRIPT}" 2>&-'),
        input=asked.encode(),
        capture_output=True,
        timeout=30,
        check=False,
        env={**environment(tmp_path), "APP_SERVER_LOG": "debug"},
    )
    assert done.returncode == 0
    assert 2 in [json.loads(line)["id"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("locale", [{"LANG": "C"}, {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}], ids=str)
def test_what_it_says_is_utf_8_in_every_locale(locale: dict[str, str], tmp_path: Path) -> None:
    with Piped(tmp_path, environment=locale) as server:
        server.initialize()
        answer = server.ask("ünï/☃")
        assert "ünï/☃" in answer["error"]["message"]


def environment(root: Path) -> dict[str, str]:
    return {"PATH": PATH, "HOME": str(root), "CODEX_HOME": str(root / "home")}
