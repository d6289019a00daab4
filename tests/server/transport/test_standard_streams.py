"""A server that lacks a resource: streams that are closed, full or without a reader, threads, processes, time to
import.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.pipes import Piped
from tests.support.program import PYTHON, SCRIPT
from tests.support.terminal import Terminal
from tests.support.world import user_environment

pytestmark = pytest.mark.process

EXEC = ("exec", "--demo", "hello")
COMMANDS = (EXEC, ("exec", "--demo", "--json", "hello"), ("doctor",), ("doctor", "--json"), ("demo", "--yes"))
CANNOT = "app-server: cannot write to stdout: "


def run_in_shell(root: Path, script: str, *arguments: str, **more: str) -> tuple[int, str]:
    """Run a command in a shell; return its exit status and all its output."""
    done = subprocess.run(
        ("bash", "-c", f'set -o pipefail; "$@" {script}', "bash", SCRIPT, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=user_environment(root, **more),
        cwd=root,
        check=False,
        text=True,
    )
    assert "Traceback" not in done.stdout, done.stdout
    return done.returncode, done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nobody_reads(command: tuple[str, ...], tmp_path: Path) -> None:
    """The pipe is broken before anything is written. The program ends without a message about it."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        (SCRIPT, *command),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=user_environment(tmp_path),
        cwd=tmp_path,
        check=False,
        text=True,
    )
    os.close(writing)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert CANNOT not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_can_be_written(command: tuple[str, ...], unbuffered: str, tmp_path: Path) -> None:
    for script, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
        status, said = run_in_shell(tmp_path, f"2>&1 {script}", *command, PYTHONUNBUFFERED=unbuffered)
        assert (status, said) == (1, f"{CANNOT}{why}\n")


def test_a_notice_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    for script in ("2>/dev/full", "2>&-", "<&-", "0<&- 2>&-"):
        status, said = run_in_shell(tmp_path, script, *EXEC)
        assert status == 0, script
        assert "I am a **scripted model**" in said


def test_what_stdin_has_not_is_asked_for(tmp_path: Path) -> None:
    assert run_in_shell(tmp_path, "<&-", "exec") == (
        2,
        "app-server exec: expected a prompt, as an argument or on stdin\n",
    )


@pytest.mark.parametrize("command", ["generate-ts", "generate-json-schema"])
def test_a_folder_that_cannot_be_made_is_named(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, said = run_in_shell(tmp_path, "", command, "--out", "file/below")
    assert (status, said) == (1, "app-server: file/below: Not a directory\n")


@pytest.mark.parametrize("command", ["exec", "chat"])
def test_a_working_folder_that_a_server_cannot_be_told(command: str, tmp_path: Path) -> None:
    prefix = f"app-server {command}: "
    script = f'mkdir gone; cd gone; rmdir ../gone; exec {SCRIPT} {command} "$@"'
    odd = f"mkdir $'caf\\xe9'; cd $'caf\\xe9'; exec {SCRIPT} {command} \"$@\""
    for each, problem in ((script, "the working directory was removed"), (odd, "is not UTF-8")):
        done = subprocess.run(
            ("bash", "-c", each, "bash", *(("hi",) if command == "exec" else ())),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=user_environment(tmp_path),
            cwd=tmp_path,
            check=False,
        )
        said = done.stderr.decode()
        assert (done.returncode, said.startswith(prefix), said.count("\n→ ")) == (2, True, 1), said
        assert problem in said


def test_a_character_that_the_encoding_has_not_is_escaped(tmp_path: Path) -> None:
    code = (
        "from app_server.server.bootstrap.standard_streams import "
        "prepare_for_text; prepare_for_text(); print('grüße € \\ud800')"
    )
    for encoding, expected in (
        ("latin-1", b"gr\xfc\xdfe \\u20ac \\ud800\n"),
        ("utf-8", "grüße € \\ud800\n".encode()),
    ):
        printed = subprocess.run(
            (PYTHON, "-c", code),
            stdout=subprocess.PIPE,
            env=user_environment(tmp_path, PYTHONIOENCODING=encoding),
            check=True,
        )
        assert printed.stdout == expected


def test_ctrl_c_before_the_turn_has_begun_says_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        (SCRIPT, "exec"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=user_environment(tmp_path),
        cwd=tmp_path,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "reading stdin until it ends" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert (process.stderr.read(), process.wait()) == ("", 130)


def test_whoever_types_it_in_a_terminal_is_told_what_it_is(tmp_path: Path) -> None:
    with Terminal().start((SCRIPT,), environment=user_environment(tmp_path), cwd=tmp_path) as terminal:
        terminal.wait_for("app-server chat")
    with Terminal().start((SCRIPT, "exec"), environment=user_environment(tmp_path), cwd=tmp_path) as terminal:
        terminal.wait_for("type the prompt, and Ctrl-D at its end")


REFUSING = """\
import os, subprocess, threading
refused, gate = os.environ["REFUSED"], os.environ["GATE"]
start, fork = threading._start_new_thread, subprocess._fork_exec
def start_new_thread(*given, **named):
    if refused == "threads" and not os.path.exists(gate):
        raise RuntimeError("can't start new thread")
    return start(*given, **named)
def fork_exec(*given):
    if refused == "processes" and not os.path.exists(gate):
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork(*given)
threading._start_new_thread, subprocess._fork_exec = start_new_thread, fork_exec
"""
"""A `sitecustomize` that makes the system refuse threads or processes until the gate file exists."""

COMMAND = {"command": ["echo", "hi"], "sandboxPolicy": {"mode": "danger-full-access"}}


@pytest.mark.parametrize("refused", ["threads", "processes"])
def test_it_answers_and_recovers(refused: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "sitecustomize.py").write_text(REFUSING)
    environment = {"PYTHONPATH": str(tmp_path), "REFUSED": refused, "GATE": str(gate)}
    with Piped(tmp_path, environment=environment) as server:
        server.initialize()
        opened = server.call("newConversation", {"cwd": str(server.workspace)})
        for id, (method, params) in enumerate(
            {
                "execOneOffCommand": COMMAND,
                "listConversations": {"pageSize": 5},
                "fuzzyFileSearch": {"query": "x", "roots": [str(server.workspace)]},
                "gitDiffToRemote": {"cwd": str(server.workspace)},
            }.items(),
            100,
        ):
            server.write(json.dumps({"id": id, "method": method, "params": params}).encode() + b"\n")
            answer = server.answer(id)
            if "error" in answer and method != "gitDiffToRemote":
                assert "try again" in answer["error"]["message"]
        gate.touch()
        assert server.call("execOneOffCommand", COMMAND)["stdout"] == "hi\n"
        assert server.call("newConversation", {"cwd": str(server.workspace)}) != opened
        server.leave()
        assert server.status(10) == 0
        assert os.path.exists(opened["rolloutPath"])


GATE = """\
import os, sys


class Gate:
    def find_spec(self, name, path=None, target=None):
        if name == "anyio":
            with open(os.environ["GATE"]) as gate:
                gate.read()
        return None


sys.meta_path.insert(0, Gate())
"""
"""A `sitecustomize` that blocks the import of the server until the gate is written to."""


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        {},
        {"elicitation": True},
        {"experimentalApi": True, "optOutNotificationMethods": ["thread/started"], "extensions": {}},
        {
            "elicitation": {"form": None, "url": None},
            "optOutNotificationMethods": "all",
            "experimentalApi": 1,
        },
        ["experimentalApi"],
    ],
    ids=["null", "none", "ours", "of newer clients", "of another shape", "no object"],
)
def test_what_arrives_while_the_server_is_loaded_is_served_in_its_order(
    tmp_path: Path, capabilities: Json
) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(GATE)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    environment = {"PYTHONPATH": str(tmp_path / "hooks"), "GATE": str(gate)}
    params = {"clientInfo": {"name": "newer", "version": "2"}, "capabilities": capabilities}
    with Piped(tmp_path, environment=environment) as server:
        requests = (
            {"id": "i", "method": "initialize", "params": params},
            {"id": "a", "method": "getUserAgent"},
        )
        server.write(b"".join(json.dumps(each).encode() + b"\n" for each in requests))
        gate.write_text("go")  # waits until the server is being loaded
        greeted, told = server.hear(), server.hear()
        assert (greeted["id"], told["id"]) == ("i", "a")
        assert greeted["result"]["userAgent"].startswith("newer/")
        assert told["result"] == {"userAgent": greeted["result"]["userAgent"]}
        again = server.ask("initialize", params)
        assert again["error"]["message"] == "Already initialized"


@pytest.mark.parametrize("opted_out", [(), ("thread/started",)])
def test_a_started_thread_is_announced_right_behind_its_answer(
    tmp_path: Path, opted_out: tuple[str, ...]
) -> None:
    """It is announced once; a client that opted out receives no announcement."""
    capabilities = {"optOutNotificationMethods": list(opted_out)}
    first = {"clientInfo": {"name": "quick", "version": "1"}, "capabilities": capabilities}
    with Piped(tmp_path) as server:
        requests = {"id": "i", "method": "initialize", "params": first}, {"id": "t", "method": "thread/start"}
        server.write(b"".join(json.dumps(each).encode() + b"\n" for each in requests))
        assert server.hear()["id"] == "i"
        answer = server.hear()
        assert answer["id"] == "t"
        if not opted_out:
            started = server.hear()
            assert started["method"] == "thread/started"
            assert started["params"] == {"thread": answer["result"]["thread"]}
            assert isinstance(started["emittedAtMs"], int)
        loaded = server.call("thread/loaded/list", {})
        assert loaded["data"] == [answer["result"]["thread"]["id"]]
        told = [message for message in server.heard if message.get("method") == "thread/started"]
        assert len(told) == (0 if opted_out else 1)
