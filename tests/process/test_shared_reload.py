"""A shared server that is replaced by another process while clients are connected: what they notice, and what they do
not.
"""

import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.protocol import State
from websockets.uri import parse_uri

from tests.support.scripted_model import ScriptedModel, reply, says
from tests.support.shared import SharedHome, read_line, shared_homes
from tests.support.world import write_config

CLIENTS = 50


@pytest.fixture
async def model() -> ScriptedModel:
    return ScriptedModel([])


@pytest.fixture
async def shared(short_folder: Path, model: ScriptedModel) -> AsyncIterator[SharedHome]:
    with shared_homes(short_folder) as home:
        async with model.serving() as url:
            write_config(home.home, url, {})
            yield home
            await anyio.to_thread.run_sync(home.run, "daemon", "stop", "--now")


class Lines:
    """A client that says lines on the socket, behind a preface as a proxy sends it."""

    def __init__(self, shared: SharedHome) -> None:
        self.connection, self._last_id = shared.connect(), 0
        self.told: list[dict[str, Any]] = []
        place = {"cwd": str(shared.root), "env": dict(shared.environment), "options": {}}
        self.connection.sendall(json.dumps({"preface": 1, "api": None, **place}).encode() + b"\n")
        assert json.loads(read_line(self.connection))["ok"]

    def request(self, method: str, **params: Any) -> bytes:
        self._last_id += 1
        return json.dumps({"id": self._last_id, "method": method, "params": params}).encode() + b"\n"

    def answer(self) -> Any:
        while True:
            message = self.read()
            if "id" in message and "method" not in message:
                assert message["id"] == self._last_id
                assert "result" in message, message
                return message["result"]
            self.told.append(message)

    def read(self) -> Any:
        return json.loads(read_line(self.connection))

    def call(self, method: str, **params: Any) -> Any:
        self.connection.sendall(self.request(method, **params))
        return self.answer()

    def initialize(self) -> None:
        self.call("initialize", clientInfo={"name": "tests", "version": "1"}, capabilities={})

    def hear(self, method: str) -> Any:
        while not any(each["method"] == method for each in self.told):
            self.told.append(self.read())
        return next(each["params"] for each in self.told if each["method"] == method)


class WebSocket(Lines):
    """A client that says frames, without a preface."""

    def __init__(self, shared: SharedHome) -> None:
        self.connection, self._last_id = shared.connect(), 0
        self.told: list[dict[str, Any]] = []
        self._protocol = ClientProtocol(parse_uri("ws://localhost/"))
        self._protocol.send_request(self._protocol.connect())
        self._send()
        self._messages: list[bytes] = []
        while not self._protocol.handshake_exc and self._protocol.state is not State.OPEN:
            self._receive()

    def _send(self) -> None:
        self.connection.sendall(b"".join(self._protocol.data_to_send()))

    def _receive(self) -> None:
        data = self.connection.recv(1 << 16)
        assert data
        self._protocol.receive_data(data)
        found = self._protocol.events_received()
        self._messages += [bytes(each.data) for each in found if isinstance(each, Frame)]

    def request(self, method: str, **params: Any) -> bytes:
        self._protocol.send_text(super().request(method, **params))
        return b"".join(self._protocol.data_to_send())

    def read(self) -> Any:
        while not self._messages:
            self._receive()
        return json.loads(self._messages.pop(0))


class Pause:
    """Measures how long a client waits at most for an answer, while others come and go."""

    def __init__(self, shared: SharedHome) -> None:
        self._client, self._over = Lines(shared), threading.Event()
        self._client.initialize()
        self._thread = threading.Thread(target=self._ask)
        self.longest = 0.0

    def _ask(self) -> None:
        while not self._over.is_set():
            asked = time.monotonic()
            self._client.call("thread/loaded/list")
            self.longest = max(self.longest, time.monotonic() - asked)

    def __enter__(self) -> "Pause":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.connection.close()


async def test_clients_notice_nothing_of_a_reload(shared: SharedHome, model: ScriptedModel) -> None:
    """Half a line and half a frame wait meanwhile; threads, settings, watches and unheard clients go on."""
    model.replies.extend(reply(says("after it")) for _ in range(2))
    await anyio.to_thread.run_sync(reload_with_clients, shared)


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

    with Pause(shared):
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
