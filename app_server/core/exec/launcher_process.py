"""The server's side of the launcher: starts it when first needed, hands requests over, ends it.

One launcher serves all commands. Where it is found dead, the next request starts another; the commands of
the old one are ended by their own supervisors only when the server goes, so nothing that runs is lost
with it.
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
"""All that the launcher has of the server's environment: where some interpreters find their own library."""

END_SECONDS = 4.0
"""A launcher whose server left needs up to two seconds; after this it is killed."""


class LauncherProcess:
    """Not running until the first request or `start`."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._python = python
        self._environment = {name: environment[name] for name in LOADER_VARIABLES if name in environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._halfway = False
        """The last request went out in part."""
        # A command should not give way to anything before it is sent.
        self._turn = anyio.Lock(fast_acquire=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> socket.socket:
        """The socket of the running launcher, which is started where there is none."""
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._drop()
        self._halfway = False
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
        """Sends one request; a second launcher is tried where the first is found dead. OSError where the system refuses
        to take the request.
        """
        data = wire.pack(request)
        async with self._turn:
            for attempt in (1, 2):
                try:
                    await self._send(self.start(), data, descriptors)
                except OSError as error:
                    if error.errno in SHORTAGES:
                        self._drop_if_halfway()
                        raise
                    self._drop()
                    if attempt == 2:
                        raise LaunchError("the launcher of commands does not stay alive") from error
                    log.warning("the launcher of commands has ended; starting another")
                except BaseException:
                    self._drop_if_halfway()
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
                self._halfway = bool(rest)

    def _drop_if_halfway(self) -> None:
        """Half a request must not be followed by another: such a launcher is of no more use. Any other is kept, for the
        commands that it runs would end with it.
        """
        if self._halfway:
            self._drop()

    def _drop(self) -> None:
        """Lets go of a launcher; it ends itself, and its commands, when it sees that."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.poll()

    async def close(self) -> None:
        """Ends the launcher and with it everything that it started; bounded."""
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
