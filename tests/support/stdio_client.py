"""A small client for a server over stdio: spawns it, sends requests, receives messages, ends it.

One task uses it, in sequence. Messages that arrive before a response are kept for `receive`. Every wait is bounded, and
no process outlives the context.
"""

import json
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from protocol.base import Json
from protocol.records import dataclass

TIMEOUT = 30.0
"""Seconds for each step of the server; the slowest machine needs a fraction."""

LONGEST_LINE = 1 << 26


class ClientError(Exception):
    """The server violated the protocol, or exceeded the time limit."""


class RequestError(ClientError):
    """The server responded with an error."""


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """A notification, or a request if it has an `id`."""

    method: str
    params: Json
    id: int | str | None = None


class Client:
    """One spawned server."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None  # both are pipes, see `spawned`
        assert process.stdout is not None
        self._process, self._stdin = process, process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)
        self._waiting: deque[ServerMessage] = deque()
        self._next_id = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    async def request(self, method: str, params: Json = None) -> Json:
        """The result of a request. Raises RequestError."""
        request_id = self._next_id
        self._next_id += 1
        await self._write(
            {"id": request_id, "method": method} | ({} if params is None else {"params": params})
        )
        while True:
            message = await self._read()
            if "method" in message:
                self._waiting.append(_server_message(message))
            elif message.get("id") == request_id:
                if "error" in message:
                    raise RequestError(f"{method}: {message['error'].get('message')}")
                return message["result"]

    async def notify(self, method: str) -> None:
        await self._write({"method": method})

    async def respond(self, request: ServerMessage, result: Json) -> None:
        """Respond to a request of the server."""
        await self._write({"id": request.id, "result": result})

    async def receive(self) -> ServerMessage:
        """The next notification or request."""
        while not self._waiting:
            message = await self._read()
            if "method" in message:
                self._waiting.append(_server_message(message))
        return self._waiting.popleft()

    async def close(self, within: float = TIMEOUT) -> int:
        """Close the server's stdin, as an editor does at its end. See `wait`."""
        await self._stdin.aclose()
        return await self.wait(within)

    async def wait(self, within: float = TIMEOUT) -> int:
        """Read the remaining output and return the exit status. Raises ClientError after a time-out."""
        with anyio.move_on_after(within):
            while (line := await self._line()) is not None:
                _message(line)
            return await self._process.wait()
        raise ClientError(f"the server still runs after {within:g} s")

    async def _write(self, message: Json) -> None:
        try:
            with anyio.fail_after(TIMEOUT):
                await self._stdin.send(json.dumps(message).encode() + b"\n")
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ClientError("the server no longer reads") from None

    async def _read(self) -> Json:
        try:
            with anyio.fail_after(TIMEOUT):
                line = await self._line()
        except TimeoutError:
            raise ClientError(f"the server sent nothing for {TIMEOUT:g} s") from None
        if line is None:
            raise ClientError("the server ended")
        return _message(line)

    async def _line(self) -> bytes | None:
        """None at the end."""
        try:
            return await self._lines.receive_until(b"\n", LONGEST_LINE)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            if self._lines.buffer:
                raise ClientError(f"the server ended within a line: {self._lines.buffer[:200]!r}") from None
            return None


@asynccontextmanager
async def spawned(command: Sequence[str], environment: Mapping[str, str], log: Path) -> AsyncIterator[Client]:
    """A server with pipes for stdin and stdout, and a file for what it logs."""
    with log.open("ab") as stderr:
        process = await anyio.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment
        )
    try:
        yield Client(process)
    finally:
        with anyio.CancelScope(shield=True):
            await _terminate(process)


async def _terminate(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        with anyio.move_on_after(3):
            await process.wait()
    if process.returncode is None:
        process.kill()
        with anyio.move_on_after(3):
            await process.wait()
    with anyio.move_on_after(1):
        await process.aclose()


def _message(line: bytes) -> Json:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise ClientError(f"the server wrote a line that is no message: {line[:200]!r}")
    return message


def _server_message(message: Json) -> ServerMessage:
    return ServerMessage(message["method"], message.get("params") or {}, message.get("id"))
