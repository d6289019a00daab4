"""A shared server that is replaced by another process while clients are connected: what they notice, and what they do
not.
"""

import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup

from tests.support.scripted_model import Hold, ScriptedModel, begins_to_say, done, reply, says, word
from tests.support.shared import SharedHome, shared_home
from tests.support.socket_clients import Lines, WebSocket, installed

CLIENTS = 50
IN_THREAD = anyio.to_thread.run_sync
T = TypeVar("T")


@pytest.fixture
async def model() -> ScriptedModel:
    return ScriptedModel([])


@pytest.fixture
async def shared(short_folder: Path, model: ScriptedModel) -> AsyncIterator[SharedHome]:
    async with shared_home(short_folder, model, {}) as home:
        yield home
        await IN_THREAD(home.run, "daemon", "stop", "--now")


class Asking:
    """A client that asks without end; each of its requests has to be answered."""

    def __init__(self, shared: SharedHome) -> None:
        self._client, self._over = Lines(shared), threading.Event()
        self._client.initialize()
        self._pool = ThreadPoolExecutor(1)

    def _ask(self) -> int:
        count = 0
        while not self._over.is_set():
            self._client.call("thread/loaded/list")
            count += 1
        return count

    def __enter__(self) -> None:
        self._asked = self._pool.submit(self._ask)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        assert self._asked.result() > 1
        self._client.connection.close()
        self._pool.shutdown()


async def test_clients_notice_nothing_of_a_reload(shared: SharedHome, model: ScriptedModel) -> None:
    """Half a line and half a frame wait meanwhile; threads, settings, watches and unheard clients go on."""
    model.replies.extend(reply(says("after it")) for _ in range(2))
    await IN_THREAD(reload_with_clients, shared)


def reload_with_clients(shared: SharedHome) -> None:
    before = shared.daemon("start")[1]["pid"]
    clients = [Lines(shared) for _ in range(CLIENTS)]
    silent, web = Lines(shared), WebSocket(shared)
    threads = []
    for client in (*clients, web):
        client.initialize()
        given = {"cwd": str(shared.root), "sandbox": "read-only", "config": {"model_reasoning_effort": "low"}}
        threads.append(client.call("thread/start", **given)["thread"]["id"])
        client.hear("thread/started")
    clients[2].call("thread/resume", threadId=threads[1])
    watched = shared.root / "watched"
    watched.mkdir()
    clients[3].call("fs/watch", watchId="w", path=str(watched))
    heard = [len(client.told) for client in clients]
    half, frame = clients[0].request("thread/loaded/list"), web.request("thread/loaded/list")
    clients[0].connection.sendall(half[:20])
    web.connection.sendall(frame[:20])

    with Asking(shared):
        status, told = shared.daemon("reload")
    assert (status, told["status"]) == (0, "reloaded"), told
    assert told["pid"] != before
    assert shared.servers() == {told["pid"]}

    clients[0].connection.sendall(half[20:])
    web.connection.sendall(frame[20:])
    for client in (clients[0], web):
        assert set(client.answer()["data"]) == set(threads)
    for client, thread, already in zip(clients, threads, heard, strict=False):
        assert client.call("thread/read", threadId=thread)["thread"]["id"] == thread
        assert {each["method"] for each in client.told[already:]} <= {"thread/settings/updated"}
    silent.initialize()
    web.call("turn/start", threadId=threads[-1], input=[{"type": "text", "text": "go"}])
    assert web.hear("turn/completed")["turn"]["status"] == "completed"
    clients[1].call("turn/start", threadId=threads[1], input=[{"type": "text", "text": "go"}])
    for client in clients[1:3]:
        assert client.hear("turn/completed")["threadId"] == threads[1]
    again = clients[1].call("thread/resume", threadId=threads[1])
    assert (again["sandbox"]["type"], again["reasoningEffort"]) == ("readOnly", "low")
    (watched / "file").touch()
    assert clients[3].hear("fs/changed")["watchId"] == "w"
    status, told = shared.daemon("reload")  # and once more, from the second server
    assert told["status"] == "reloaded"
    assert clients[4].call("thread/read", threadId=threads[4])["thread"]["id"] == threads[4]


async def test_a_turn_ends_as_ever_before_its_server_is_replaced(
    shared: SharedHome, model: ScriptedModel
) -> None:
    hold = Hold()
    message = {
        "type": "message",
        "role": "assistant",
        "id": "m",
        "content": [{"type": "output_text", "text": "a b"}],
    }
    model.replies.append(reply(begins_to_say(), word("a "), hold, word("b"), done(message)))
    before = (await IN_THREAD(shared.daemon, "start"))[1]["pid"]
    client = await IN_THREAD(begun, shared)
    await hold.reached.wait()
    async with anyio.create_task_group() as group:
        replaced = in_background(group, shared.daemon, "reload")
        waits_for: list[str] = []
        while not any("turn" in each for each in waits_for):
            waits_for = (await IN_THREAD(shared.status))["reloadWaitsFor"] or []
        assert (await IN_THREAD(shared.status))["pid"] == before
        hold.release()
    assert (await IN_THREAD(client.hear, "turn/completed"))["turn"]["status"] == "completed"
    assert [each["params"]["delta"] for each in client.told if each["method"].endswith("/delta")] == [
        "a ",
        "b",
    ]
    [(status, told)] = replaced
    assert (status, told["status"]) == (0, "reloaded")
    assert told["pid"] != before


async def test_a_reload_that_waits_for_nothing_interrupts(shared: SharedHome, model: ScriptedModel) -> None:
    hold = Hold()
    model.replies.append(reply(begins_to_say(), word("a "), hold))
    await IN_THREAD(shared.daemon, "start")
    client = await IN_THREAD(begun, shared)
    await hold.reached.wait()
    status, told = await IN_THREAD(shared.daemon, "reload", "--now")
    assert (status, told["status"]) == (0, "reloaded")
    assert (await IN_THREAD(client.hear, "turn/completed"))["turn"]["status"] == "interrupted"
    hold.release()


def begun(shared: SharedHome) -> Lines:
    """A client whose turn has begun."""
    client = Lines(shared)
    client.initialize()
    thread = client.call("thread/start", cwd=str(shared.root))["thread"]["id"]
    client.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
    return client


def in_background(group: TaskGroup, work: Callable[..., T], *arguments: str) -> list[T]:
    """A list in which its result is, once it has ended."""
    results: list[T] = []

    async def run() -> None:
        results.append(await IN_THREAD(work, *arguments))

    group.start_soon(run)
    return results


BREAKS = {
    "does not start": ("shared/shared_process.py", 'raise RuntimeError("broken")'),
    "does not take over": (
        "shared/handover.py",
        "async def fail(*_): raise RuntimeError('broken')\nPredecessor.go_on = fail",
    ),
}


@pytest.mark.parametrize("why", BREAKS)
async def test_a_version_that_fails_leaves_the_old_server(
    shared: SharedHome, model: ScriptedModel, why: str
) -> None:
    model.replies.append(reply(says("still here")))
    await IN_THREAD(fail_to_replace, shared, why)


def fail_to_replace(shared: SharedHome, why: str) -> None:
    file, text = BREAKS[why]
    with installed(shared) as package:
        client = Lines(shared)
        client.initialize()
        thread = client.call("thread/start", cwd=str(shared.root))["thread"]["id"]
        before = shared.status()["pid"]
        with (package / file).open("a") as broken:
            broken.write(f"\n{text}\n")
        status, out, err = shared.run("daemon", "reload")
        assert (status, out) == (1, "")
        assert why in err
        assert "RuntimeError: broken" in shared.log
        assert "this server goes on: " in shared.log
        assert shared.status()["pid"] == before
        client.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
        assert client.hear("turn/completed")["turn"]["status"] == "completed"
        assert shared.servers() == {before}


async def test_a_server_that_is_watched_is_not_replaced(shared: SharedHome) -> None:
    """Who has started it waits for its end."""
    with shared.server() as server:
        await IN_THREAD(server.listening_on, 1)
        status, _, err = await IN_THREAD(shared.run, "daemon", "reload")
        assert status == 1
        assert "watched by who has started it" in err
