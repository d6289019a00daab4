"""A model of negligible cost: it answers each request with prepared bytes, over loopback.

Requests are counted and measured, not parsed. asyncio's own protocol class is used, because the cost of the model is
added to every figure.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import cycle

import anyio

from benchmarks.replies import HELLO, Paced, Reply

NOTHING_HERE = b"HTTP/1.1 404 None\r\ncontent-length: 0\r\n\r\n"


@dataclass(slots=True)
class PreparedModel:
    """Model that answers with `replies` in order, then with those of `otherwise`. `async with model.serving() as url`
    serves it.
    """

    otherwise: Callable[[], Reply] = lambda: HELLO
    replies: deque[Reply] = field(default_factory=deque)
    requests: int = 0
    received: int = 0
    """Total size of the requests' bodies, in bytes."""
    sent_at: list[float] = field(default_factory=list)
    """Time at which each piece of the paced replies was written, in seconds."""

    def next(self, size: int) -> Reply:
        self.requests += 1
        self.received += size
        return self.replies.popleft() if self.replies else self.otherwise()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        finally:
            server.close()


class _Connection(asyncio.Protocol):
    def __init__(self, model: PreparedModel) -> None:
        self._model = model
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        """Answer the next request; return False if no whole request has arrived yet."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._received[:end]).lower()
        _, named, rest = head.partition(b"\r\ncontent-length:")
        length = int(rest.partition(b"\r\n")[0]) if named else 0
        whole = end + 4 + length
        if len(self._received) < whole:
            return False
        del self._received[:whole]
        if not head.startswith(b"post "):
            self._transport.write(NOTHING_HERE)
            return True
        answer = self._model.next(length)
        if isinstance(answer, Paced):
            self._write_paced(answer, 0)
        else:
            self._transport.write(answer)
        return True

    def _write_paced(self, answer: Paced, at: int) -> None:
        if at == len(answer.pieces) or self._transport.is_closing():
            return
        self._model.sent_at.append(time.perf_counter())
        self._transport.write(answer.pieces[at])
        asyncio.get_running_loop().call_later(answer.gap, self._write_paced, answer, at + 1)


async def _serve_alone(replies: tuple[Reply, ...]) -> None:
    async with PreparedModel(cycle(replies).__next__).serving() as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        # The process that started this one ends it by closing its stdin.
        await anyio.to_thread.run_sync(sys.stdin.read)


def serve_alone(*replies: Reply) -> None:
    """Serve these replies in turn, without end."""
    anyio.run(_serve_alone, replies)


@contextmanager
def model_process(said: str) -> Iterator[str]:
    """Run a model in a process of its own that sends these replies (code with the names of `replies`) in turn; yield
    its URL.
    """
    code = f"from benchmarks.model import serve_alone; from benchmarks.replies import *; serve_alone({said})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    with subprocess.Popen((sys.executable, "-c", code), stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
