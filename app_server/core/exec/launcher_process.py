"""The server's side of the launcher: starts it on first use, sends requests, ends it.

One launcher serves all commands. If it has died, the next request starts another. The old launcher's commands keep
running: their supervisors end them only when the server ends.
"""

from __future__ import annotations

import logging
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import anyio

from app_server.core.errors import SHORTAGES, LaunchError, retry_hint
from app_server.core.launcher import wire
from app_server.core.threads import run_in_thread

log = logging.getLogger(__name__)

SCRIPT = Path(wire.__file__).with_name("main.py")
LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables that the launcher inherits: some interpreters need them to find their own library."""

END_SECONDS = 4.0
"""A launcher takes up to two seconds to end after its server; after this time it is killed."""


class LauncherProcess:
    """Not running until the first request or `start`."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._python = python
        self._environment = {name: environment[name] for name in LOADER_VARIABLES if name in environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._partially_sent = False
        """Whether the last request was sent only in part."""
        # Fast: without contention a command is sent without a checkpoint before.
        self._sending = anyio.Lock(fast_acquire=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> socket.socket:
        """The socket of the launcher, which is started if it does not run."""
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._drop()
        self._partially_sent = False
        with ExitStack() as opened:
            try:
                ours, theirs = socket.socketpair()
                opened.enter_context(ours)
                with theirs:
                    self._process = subprocess.Popen(
                        [self._python, "-I", "-S", str(SCRIPT), str(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(),),
                        env=self._environment,
                        cwd="/",
                        start_new_session=True,
                    )
            except OSError as error:
                text = (
                    f"the launcher of commands cannot be started: {error.strerror}{retry_hint(error.errno)}"
                )
                raise LaunchError(text) from error
            opened.pop_all()
        ours.setblocking(False)
        self._socket = ours
        return ours

    async def submit(self, request: wire.Value, descriptors: list[int]) -> None:
        """Send one request, to a second launcher if the first has died. Raises OSError if the system is short of
        resources for the request.
        """
        data = wire.pack(request)
        async with self._sending:
            for attempt in (1, 2):
                try:
                    await self._send(self.start(), data, descriptors)
                except OSError as error:
                    if error.errno in SHORTAGES:
                        self._drop_if_partially_sent()
                        raise
                    self._drop()
                    if attempt == 2:
                        raise LaunchError("the launcher of commands does not stay alive") from error
                    log.warning("the launcher of commands has ended; starting another")
                except BaseException:
                    self._drop_if_partially_sent()
                    raise
                else:
                    return

    async def _send(self, sock: socket.socket, data: bytes, descriptors: list[int]) -> None:
        ancillary = wire.descriptors_message(descriptors)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.sendmsg([rest], ancillary) :]
            except BlockingIOError:
                await anyio.wait_writable(sock)
            else:
                ancillary = []
                self._partially_sent = bool(rest)

    def _drop_if_partially_sent(self) -> None:
        """After a partial request the launcher would misread the next one. Otherwise the launcher is kept, because its
        commands would end with it.
        """
        if self._partially_sent:
            self._drop()

    def _drop(self) -> None:
        """Close the socket of the launcher; it then ends itself and its commands."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.poll()

    async def close(self) -> None:
        """End the launcher and everything that it started, within a bound."""
        self._drop()
        process, self._process = self._process, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                await run_in_thread(process.wait, END_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("the launcher of commands had to be killed")
                process.kill()
                process.wait()
