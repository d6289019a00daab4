"""A server that is given no more threads or processes answers, and works again when it is given some."""

import json
import os
from pathlib import Path

import pytest

from tests.support.pipes import Piped

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
"""A `sitecustomize` that has the system refuse them until the gate is there."""

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
