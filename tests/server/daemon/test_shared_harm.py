"""Faults that must not harm the clients of a shared server: a full disk, too many clients, and a client's secrets in
messages.
"""

import json
import os
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest

from app_server_protocol.encoding import Json
from tests.support.scripted_model import ScriptedModel, reply, says, script
from tests.support.shared import INITIALIZE, SharedHome, answer_of, is_closed, read_line, shared_home
from tests.support.socket_clients import Lines
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

IN_THREAD = anyio.to_thread.run_sync
CANARY = "canary-0123456789abcdef"


@pytest.fixture
async def model() -> ScriptedModel:
    return ScriptedModel([])


@pytest.fixture
async def shared(short_folder: Path, model: ScriptedModel) -> AsyncIterator[SharedHome]:
    async with shared_home(short_folder, model, {"sandbox_mode": "danger-full-access"}) as home:
        yield home


def begin(client: Lines, shared: SharedHome) -> str:
    client.initialize()
    thread: str = client.call("thread/start", cwd=str(shared.root), approvalPolicy="never")["thread"]["id"]
    return thread


def say(client: Lines, thread: str, text: str) -> Json:
    """Run a whole turn."""
    client.told.clear()
    client.call("turn/start", threadId=thread, input=[{"type": "text", "text": text}])
    return client.hear("turn/completed")["turn"]


def warnings(client: Lines) -> list[str]:
    found = [each["params"]["message"] for each in client.told if each["method"] == "warning"]
    return [each for each in found if "cannot be stored" in each]


async def test_a_full_disk_is_told_to_each_client_once_and_loses_nothing(
    shared: SharedHome, model: ScriptedModel
) -> None:
    model.replies += [reply(says(f"answer {n}")) for n in range(8)]

    def play() -> None:
        with shared.server() as server:
            server.listening_on(1)
            clients = [Lines(shared), Lines(shared)]
            threads = [begin(client, shared) for client in clients]
            for client, thread in zip(clients, threads, strict=True):
                assert say(client, thread, "before")["status"] == "completed"
            files = sorted(shared.home.glob("sessions/**/rollout-*.jsonl"))
            assert len(files) == 2
            # A file with a size limit refuses writes like a full disk, and accepts a part of a write first.
            most = max(path.stat().st_size for path in files) + 100
            usual = resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            told: list[list[str]] = [[], []]
            for text in ("full", "full still"):
                for number, (client, thread) in enumerate(zip(clients, threads, strict=True)):
                    assert say(client, thread, text + "x" * most)["status"] == "completed"
                    told[number] += warnings(client)
            assert [len(each) for each in told] == [1, 1]
            with shared.connect() as another:
                assert "result" in answer_of(another)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, usual)
            for client, thread in zip(clients, threads, strict=True):
                assert say(client, thread, "after")["status"] == "completed"
                client.connection.close()
        for path in files:
            lines = [json.loads(line)["payload"] for line in path.read_text().splitlines()]
            said = [line["message"] for line in lines if line.get("type") == "user_message"]
            assert [text.rstrip("x") for text in said] == ["before", "full", "full still", "after"]

    await IN_THREAD(play)


async def test_one_client_too_many_is_told_so_in_its_language(shared: SharedHome) -> None:
    shared.environment["APP_SERVER_MAX_CLIENTS"] = "1"

    def play() -> None:
        with shared.server() as server:
            server.listening_on(1)
            with shared.connect() as first, shared.connect() as lines, shared.connect() as web:
                assert "result" in answer_of(first)
                lines.sendall(INITIALIZE)
                error = json.loads(read_line(lines))["error"]
                assert (error["code"], error["data"]["retryable"]) == (-32001, True)
                lines.shutdown(socket.SHUT_WR)
                assert is_closed(lines)
                web.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert web.recv(100).startswith(b"HTTP/1.1 503 ")
                with shared.client() as alone:  # a proxy serves alone
                    alone.initialize()
                    said = alone.log.read_text()
                assert said.startswith("app-server: this client is served alone: Server overloaded: ")
                first.close()
            wait_until(lambda: shared.status()["clients"] == [])
            with shared.connect() as next_one:
                assert "result" in answer_of(next_one)

    await IN_THREAD(play)


async def test_the_environment_of_a_client_is_shown_to_nobody(
    shared: SharedHome, model: ScriptedModel
) -> None:
    model.replies += [reply(script('test -n "$OWN" && echo "it is ${#OWN} long"')), reply(says("done"))]
    shared.environment["APP_SERVER_LOG"] = "debug"

    def play() -> None:
        other = Lines(shared)
        owner = Lines(shared, OWN=CANARY)
        thread = begin(owner, shared)
        other.initialize()
        other.call("thread/resume", threadId=thread)
        assert say(owner, thread, "go")["status"] == "completed"
        other.hear("turn/completed")
        for method in ("thread/read", "config/read", "thread/loaded/list"):
            other.call(method, threadId=thread, includeTurns=True)
        status = shared.status()
        shown = {
            "other client": json.dumps(other.told),
            "status": json.dumps(status),
            "log": shared.log,
            "environment of the server": environment_of(status["pid"]),
            **{
                str(path): path.read_bytes().decode(errors="replace")
                for path in shared.home.rglob("*")
                if path.is_file()
            },
        }
        assert any("rollout-" in name for name in shown)
        assert [name for name, text in shown.items() if CANARY in text] == []

    assert (await IN_THREAD(shared.daemon, "start"))[0] == 0
    await IN_THREAD(play)
    assert f"it is {len(CANARY)} long" in model.requests[1].outputs()["c1"]  # its command had the secret
    assert CANARY not in json.dumps([request.body for request in model.requests])


def environment_of(pid: int) -> str:
    if os.geteuid() != 0:  # only root may read it
        return ""
    return Path(f"/proc/{pid}/environ").read_text(errors="replace")
