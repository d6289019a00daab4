"""A shared server that is replaced by one of the installed version. The old server leaves with its last client."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import pytest

from tests.support.processes import runs
from tests.support.scripted_model import ScriptedModel, reply, says
from tests.support.shared import SharedHome, shared_home
from tests.support.socket_clients import Lines
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

IN_THREAD = anyio.to_thread.run_sync


@pytest.fixture
async def model() -> ScriptedModel:
    return ScriptedModel([])


@pytest.fixture
async def shared(short_folder: Path, model: ScriptedModel) -> AsyncIterator[SharedHome]:
    async with shared_home(short_folder, model, {}) as home:
        yield home
        await IN_THREAD(home.run, "daemon", "stop", "--now")


@contextmanager
def client(shared: SharedHome) -> Iterator[Lines]:
    found = Lines(shared)
    found.initialize()
    try:
        yield found
    finally:
        found.connection.close()


async def test_the_old_server_serves_its_clients_and_leaves_with_the_last(
    shared: SharedHome, model: ScriptedModel
) -> None:
    model.replies.extend(reply(says("done")) for _ in range(3))
    await IN_THREAD(replace_beside_clients, shared)


def replace_beside_clients(shared: SharedHome) -> None:
    old = shared.daemon("start", "-c", "model_verbosity=low")[1]["pid"]
    with client(shared) as first, client(shared) as second:
        thread = first.call("thread/start", cwd=str(shared.root))["thread"]["id"]
        status, told = shared.daemon("reload")
        assert (status, told["status"]) == (0, "reloaded"), told
        assert (told["oldPid"], told["oldClients"]) == (old, 2)
        assert told["pid"] != old
        assert shared.servers() == {old, told["pid"]}
        first.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
        assert first.hear("turn/completed")["turn"]["status"] == "completed"
        with client(shared) as third:  # the new server serves it, with the options of the old one
            assert [each["name"] for each in shared.status()["clients"]] == ["tests"]
            assert third.call("config/read")["config"]["model_verbosity"] == "low"
            assert "active writer" in third.ask("thread/resume", threadId=thread)["error"]["message"]
            first.connection.close()  # the thread has no client any more, so the other server can open it
            wait_until(lambda: "error" not in third.ask("thread/resume", threadId=thread))
        assert second.call("thread/loaded/list")["data"] == []
        assert runs(old)
    wait_until(lambda: not runs(old))
    assert shared.servers() == {told["pid"]}


async def test_a_reload_that_waits_for_nobody_ends_the_old_server(shared: SharedHome) -> None:
    await IN_THREAD(replace_at_once, shared)


def replace_at_once(shared: SharedHome) -> None:
    old = shared.daemon("start")[1]["pid"]
    with client(shared) as first:
        _, told = shared.daemon("reload", "--now")
        assert (told["status"], told["oldClients"]) == ("reloaded", 0)
        assert first.connection.recv(1) == b""
    wait_until(lambda: not runs(old))


async def test_without_clients_the_old_server_leaves_at_once(shared: SharedHome) -> None:
    """This is the usual moment of an upgrade."""
    await IN_THREAD(replace_without_clients, shared)


def replace_without_clients(shared: SharedHome) -> None:
    old = shared.daemon("start")[1]["pid"]
    status, told = shared.daemon("reload")
    assert (status, told["status"], told["oldClients"]) == (0, "reloaded", 0)
    wait_until(lambda: shared.servers() == {told["pid"]})
    assert told["pid"] != old


async def test_a_version_that_does_not_start_changes_nothing(
    shared: SharedHome, model: ScriptedModel
) -> None:
    model.replies.append(reply(says("still here")))
    await IN_THREAD(fail_to_replace, shared)


BROKEN = """
import sys
from app_server.server.proxy import spawn as starting
from app_server.server.daemon.daemon_command import run_daemon
starting.server_command = lambda place: ("/bin/sh", "-c", "echo RuntimeError: broken >&2; exit 1", "sh")
sys.exit(run_daemon("reload", {}))
"""


def fail_to_replace(shared: SharedHome) -> None:
    before = shared.daemon("start")[1]["pid"]
    with client(shared) as first:
        thread = first.call("thread/start", cwd=str(shared.root))["thread"]["id"]
        done = subprocess.run(
            (sys.executable, "-c", BROKEN),
            capture_output=True,
            text=True,
            env=shared.environment,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "the installed version does not start: RuntimeError: broken" in done.stderr
        assert "the server that runs goes on" in done.stderr
        assert shared.status()["pid"] == before
        first.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
        assert first.hear("turn/completed")["turn"]["status"] == "completed"


async def test_a_server_that_is_watched_is_not_replaced(shared: SharedHome) -> None:
    """The process that has started the server waits for its end."""
    with shared.server() as server:
        await IN_THREAD(server.listening_on, 1)
        status, _, err = await IN_THREAD(shared.run, "daemon", "reload")
        assert status == 1
        assert "watched by who has started it" in err
