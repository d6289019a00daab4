"""The installed server over real pipes, for tests about bytes: every byte is written unchanged.

It uses plain threads and no event loop: one process serves many tests, and a time limit ends anything that hangs.
"""

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from app_server_protocol.encoding import Json
from tests.support.processes import descendants, memory
from tests.support.program import SCRIPT
from tests.support.world import plain_environment

PATIENCE = 30.0
"""Maximum time of an answer on a loaded machine, in seconds."""

INITIALIZE: Json = {"clientInfo": {"name": "tests", "version": "1"}}
HEALTH = b'{"id":"health","method":"getUserAgent"}\n'


class Silence(AssertionError):
    """No message came in time, or the server left."""


class Piped:
    """One server process with the client's ends of its pipes."""

    def __init__(
        self,
        root: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        stderr: int | IO[bytes] | None = None,
        config: str = "",
    ) -> None:
        self.root = root
        self.home, self.workspace = root / "home", root / "workspace"
        self.home.mkdir(exist_ok=True)
        self.workspace.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(config, encoding="utf-8")
        self.log = root / "stderr.txt"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                (SCRIPT, "app-server", *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
                env=plain_environment(self.home, **(environment or {})),
                cwd=self.workspace,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.heard: list[Json] = []
        self.kept: list[Json] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._next_id = 0
        self._reading = threading.Event()
        self._reading.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.stdout:
            self._reading.wait()
            self._lines.put(line)
        self._lines.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    # --- bytes
    def write(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def hear(self, within: float = PATIENCE) -> Json:
        """Return the next message of any kind."""
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise Silence(f"nothing for {within:g} s; heard {self.heard[-5:]}") from None
        if line is None:
            self._lines.put(None)
            raise Silence(f"the server left: {self.log.read_text(errors='replace')[-2000:]}")
        message = json.loads(line)
        assert isinstance(message, dict)
        self.heard.append(message)
        return message

    @contextmanager
    def reading_nothing(self) -> Iterator[None]:
        """Read nothing while the block runs, so that the pipe fills up."""
        self._reading.clear()
        try:
            yield
        finally:
            self._reading.set()

    # --- messages
    def ask(self, method: str, params: Json = None) -> Json:
        """Send a request and return its whole answer. Other messages that arrive meanwhile are added to `heard`."""
        self._next_id += 1
        message = {"id": self._next_id, "method": method} | ({} if params is None else {"params": params})
        self.write(json.dumps(message).encode() + b"\n")
        return self.answer(self._next_id)

    def answer(self, id: int | str | None, within: float = PATIENCE) -> Json:
        while True:
            message = self.hear(within)
            if "method" not in message and message.get("id") == id and type(message["id"]) is type(id):
                return message

    def call(self, method: str, params: Json = None) -> Json:
        answer = self.ask(method, params)
        assert "result" in answer, f"{method}: {answer}"
        return answer["result"]

    def initialize(self) -> Self:
        self.call("initialize", INITIALIZE)
        return self

    def healthy(self, within: float = PATIENCE) -> bool:
        """Return whether the next request works."""
        self.write(HEALTH)
        return "result" in self.answer("health", within)

    def answers_to(self, data: bytes) -> list[Json]:
        """Send bytes and return the messages that arrive before the next request is answered."""
        start = len(self.heard)
        self.write(data)
        assert self.healthy()
        return [message for message in self.heard[start:-1] if "method" not in message]

    # --- the end
    def status(self, within: float = PATIENCE) -> int:
        """Wait until the process leaves by itself; return its exit status."""
        return self.process.wait(within)

    def leave(self) -> None:
        self.stdin.close()

    def tell(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def memory(self) -> int:
        return memory(self.process.pid)

    def descendants(self) -> set[int]:
        return descendants(self.process.pid)

    def end(self) -> None:
        try:
            self.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reading.set()
        self._reader.join(3)
        self.stdout.close()
