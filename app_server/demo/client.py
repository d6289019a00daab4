"""A small client for a server over stdio: spawns it, asks it, hears what it says, lets it go.

One task uses it, in sequence. While an answer is waited for, whatever else arrives is kept for `hear`. Every
wait is bounded; whoever leaves the block leaves no process behind.
"""

from __future__ import annotations

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

PATIENCE = 30.0
"""Seconds that anything of the server may take; the slowest machine needs a fraction."""

LONGEST_LINE = 1 << 26


class ClientError(Exception):
    """The server did not keep to the protocol, or did not answer in time."""


class RequestError(ClientError):
    """The server answered a request by an error."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A notification, or a question where `id` is one."""

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
        self._waiting: deque[Heard] = deque()
        self._next_id = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, method: str, params: Json = None) -> Json:
        """The result of a request. Raises RequestError."""
        request_id = self._next_id
        self._next_id += 1
        await self._write(
            {"id": request_id, "method": method} | ({} if params is None else {"params": params})
        )
        while True:
            message = await self._read()
            if "method" in message:
                self._waiting.append(_heard(message))
            elif message.get("id") == request_id:
                if "error" in message:
                    raise RequestError(f"{method}: {message['error'].get('message')}")
                return message["result"]

    async def tell(self, method: str) -> None:
        """A notification."""
        await self._write({"method": method})

    async def answer(self, question: Heard, result: Json) -> None:
        """What the server asked for."""
        await self._write({"id": question.id, "result": result})

    async def hear(self) -> Heard:
        """The next notification or question."""
        while not self._waiting:
            message = await self._read()
            if "method" in message:
                self._waiting.append(_heard(message))
        return self._waiting.popleft()

    async def leave(self, within: float = PATIENCE) -> int:
        """Closes the server's stdin, as an editor does that ends. See `end`."""
        await self._stdin.aclose()
        return await self.end(within)

    async def end(self, within: float = PATIENCE) -> int:
        """Hears the server out and returns its exit status. Raises ClientError where it goes on for longer."""
        with anyio.move_on_after(within):
            while (line := await self._line()) is not None:
                _message(line)
            return await self._process.wait()
        raise ClientError(f"the server still runs after {within:g} s")

    async def _write(self, message: Json) -> None:
        try:
            with anyio.fail_after(PATIENCE):
                await self._stdin.send(json.dumps(message).encode() + b"\n")
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ClientError("the server reads no more") from None

    async def _read(self) -> Json:
        try:
            with anyio.fail_after(PATIENCE):
                line = await self._line()
        except TimeoutError:
            raise ClientError(f"the server said nothing for {PATIENCE:g} s") from None
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
            await _ended(process)


async def _ended(process: Process) -> None:
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


def _heard(message: Json) -> Heard:
    return Heard(message["method"], message.get("params") or {}, message.get("id"))
