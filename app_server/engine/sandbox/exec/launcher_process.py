"""The server's side of the launcher: starts it on first use, builds and sends requests, ends it.

One launcher serves all commands. If it has died, the next request starts another. The old launcher's commands keep
running: their supervisors end them only when the server ends. A request is a command and its plan as plain bytes and
numbers.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from functools import lru_cache

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.sandbox.exec.command import CommandSpec, oversized_word
from app_server.engine.sandbox.exec.landlock_rights import LandlockRights
from app_server.engine.sandbox.launcher import launcher_wire
from app_server.engine.sandbox.launcher.launcher_wire import Value
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.support.engine_errors import SHORTAGES, LaunchError, retry_hint
from app_server.engine.support.helpers import launcher_command
from app_server.engine.support.worker_threads import run_in_thread

log = logging.getLogger(__name__)

LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables that the launcher inherits: some interpreters need them to find their own library."""

END_SECONDS = 4.0
"""Timeout of the launcher's end, in seconds; then it is killed. A launcher takes up to two seconds to end after its
server.
"""


class LauncherProcess:
    """The launcher's process. It does not run before the first request or `start`."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._python = python
        self._environment = {name: environment[name] for name in LOADER_VARIABLES if name in environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._partially_sent = False
        """Whether only a part of the last request was sent."""
        # The lock is fast: without contention a command is sent without a checkpoint before.
        self._sending = anyio.Lock(fast_acquire=True)

    def start(self) -> socket.socket:
        """Return the socket of the launcher. Start the launcher if it does not run."""
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
                        [*launcher_command(self._python), str(theirs.fileno())],
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

    async def submit(self, request: launcher_wire.Value, descriptors: list[int]) -> None:
        """Send one request. If the launcher has died, send it to a second one. Raises OSError if the system is short of
        resources for the request.
        """
        data = launcher_wire.pack(request)
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
        ancillary = launcher_wire.descriptors_message(descriptors)
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
        """Drop the launcher after a partial request, because it would misread the next one. Otherwise keep it, because
        its commands would end with it.
        """
        if self._partially_sent:
            self._drop()

    def _drop(self) -> None:
        """Close the socket of the launcher. The launcher then ends itself and its commands."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.poll()

    async def close(self) -> None:
        """End the launcher and all processes that it started, within a bound."""
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


class SandboxArgs(Struct, frozen=True):
    """Layers of confinement that this machine supports, by the result of the probe."""

    namespaces: bool
    landlock: LandlockRights | None


def build(
    spec: CommandSpec, confinement: SandboxArgs | None, *, terminal: bool = False, background: bool = True
) -> Value:
    """Return the request for one command. `confinement` and `spec.sandbox` are both given or both None. With
    `background`, processes may outlive an unconfined command; no confined process outlives its command.
    """
    if not spec.argv or not spec.argv[0]:
        raise LaunchError("command args are empty")
    if (problem := oversized_word(spec.argv)) is not None:
        raise LaunchError(problem)
    plan = spec.sandbox
    return {
        "argv": [_encode(argument) for argument in spec.argv],
        "cwd": _encode(spec.cwd),
        "exact_cwd": spec.exact_cwd,
        "env": {
            _variable(name): _variable(value) for name, value in spec.env.items() if name and "=" not in name
        },
        "tty": terminal,
        "background": background and plan is None,
        "confine": None if plan is None or confinement is None else _confine(plan, confinement),
    }


def _confine(plan: SandboxPlan, confinement: SandboxArgs) -> dict[str, Value]:
    view = plan.view
    return {
        "namespaces": confinement.namespaces,
        "landlock": None if confinement.landlock is None else msgspec.to_builtins(confinement.landlock),
        "roots": [_encode(root) for root in plan.writable_roots],
        "pinned": [_encode(place) for place in plan.pinned],
        "protected": [_encode(path) for path in plan.protected],
        "reserved": [_encode(name) for name in plan.reserved] if confinement.namespaces else [],
        "home": _encode(plan.home),
        "secrets": [_encode(name) for name in plan.secrets],
        "network": plan.network,
        "private_temp": plan.private_temp and confinement.namespaces,
        "foreign_files": plan.foreign_files,
        "visible": None if view.visible is None else [_encode(path) for path in view.visible],
        "links": [_encode(path) for path in view.links],
        "hidden": [_encode(path) for path in view.hidden],
        "reopened": [_encode(path) for path in view.reopened],
        "shown": [_encode(path) for path in view.programs] if view.shows_programs else [],
    }


def _encode(text: str) -> bytes:
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        raise LaunchError("text that is not valid Unicode found in provided data") from None
    if b"\0" in data:
        raise LaunchError("nul byte found in provided data")
    return data


@lru_cache(maxsize=1024)
def _variable(text: str) -> bytes:
    """Return an encoded name or value of an environment. It is cached, because each command has nearly the same
    environment.
    """
    return _encode(text)
