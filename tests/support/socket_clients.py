"""Clients that send lines or frames on the socket of a shared server, and a server of an installation of its own."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.protocol import State
from websockets.uri import parse_uri

import app_server
import app_server_protocol
from app_server.engine.support.filelock import hold as hold_lock
from app_server.server.proxy.spawn import READY
from tests.support.program import PYTHON
from tests.support.shared import SharedHome, read_line


class Lines:
    """Client that sends lines on the socket, after the preface that a proxy sends."""

    def __init__(self, shared: SharedHome, api: str | None = None, **environment: str) -> None:
        self.connection, self._last_id = shared.connect(), 0
        self.told: list[dict[str, Any]] = []
        env = {**shared.environment, **environment}
        place = {"cwd": str(shared.root), "env": env, "options": {}}
        self.connection.sendall(json.dumps({"preface": 1, "api": api, **place}).encode() + b"\n")
        assert json.loads(read_line(self.connection))["ok"]

    def request(self, method: str, **params: Any) -> bytes:
        self._last_id += 1
        return json.dumps({"id": self._last_id, "method": method, "params": params}).encode() + b"\n"

    def answer(self) -> Any:
        message = self.outcome()
        assert "result" in message, message
        return message["result"]

    def outcome(self) -> Any:
        """Return the next answer, result or error."""
        while True:
            message = self.read()
            if "id" in message and "method" not in message:
                assert message["id"] == self._last_id
                return message
            self.told.append(message)

    def read(self) -> Any:
        return json.loads(read_line(self.connection))

    def call(self, method: str, **params: Any) -> Any:
        self.connection.sendall(self.request(method, **params))
        return self.answer()

    def ask(self, method: str, **params: Any) -> Any:
        self.connection.sendall(self.request(method, **params))
        return self.outcome()

    def initialize(self) -> None:
        self.call("initialize", clientInfo={"name": "tests", "version": "1"}, capabilities={})

    def hear(self, method: str) -> Any:
        while not any(each["method"] == method for each in self.told):
            self.told.append(self.read())
        return next(each["params"] for each in self.told if each["method"] == method)


class WebSocket(Lines):
    """Client that sends WebSocket frames, without a preface."""

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


@contextmanager
def installed(shared: SharedHome) -> Iterator[Path]:
    """Yield a copy of the installed program. No other process watches over the server that runs from it."""
    copy = shared.root / "installed"
    for package in (app_server, app_server_protocol):
        source = Path(package.__path__[0])
        shutil.copytree(source, copy / source.name)  # with its compiled files, if it has some
    shared.place.make_ready()
    lock = hold_lock(shared.place.startup_lock)
    told, tells = os.pipe()
    with open(shared.place.log, "wb") as log:
        process = subprocess.Popen(
            (PYTHON, "-P", "-m", "app_server", "--listen=unix://", "--startup", f"{lock},{tells}"),
            env={**shared.environment, "PYTHONPATH": str(copy)},
            pass_fds=(lock, tells),
            stderr=log,
        )
    os.close(tells)
    os.close(lock)
    try:
        assert os.read(told, 16) == READY, shared.log
        yield copy / "app_server"
    finally:
        os.close(told)
        process.kill()
        process.wait()
