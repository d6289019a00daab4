"""Runs commands: owns the launcher, probes how the machine can confine commands, makes sandbox plans.

The composition root owns it as a context manager. It reads neither the process environment nor the working directory.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from app_server.core import remedies
from app_server.core.errors import CoreError, LaunchError, SandboxUnavailable
from app_server.core.exec import probing, pty, run
from app_server.core.exec.command import CommandSpec, ExecResult, OnOutput
from app_server.core.exec.launcher_process import Confinement, LauncherProcess
from app_server.core.exec.login_shell import LoginShells
from app_server.core.exec.provided_programs import Programs
from app_server.core.exec.streamed import (
    ServiceProcess,
    StreamedCommand,
    TerminalSize,
    open_service,
    open_streamed,
)
from app_server.core.exec.streams import STREAM_CAP
from app_server.core.real_path import real_path
from app_server.core.sandbox import macos
from app_server.core.sandbox.inspect import inspect
from app_server.core.sandbox.plan import SandboxPlan, make_plan, within
from app_server.core.sandbox.probe import SandboxLayer, SandboxState
from app_server.core.sandbox.roots import ConversationRoots, ServerRoots
from protocol.policy import SandboxPolicy
from protocol.records import dataclass
from protocol.structs import replace

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
"""How often a machine without the full sandbox is probed again: an administrator may have enabled it."""


@dataclass(slots=True)
class CommandRunner:
    """Runs commands for all conversations of one server."""

    python: str
    """The interpreter that runs the launcher."""
    home: str
    """The server's home: read-only for commands, its secrets hidden."""
    tmpdir: str | None
    """The server's $TMPDIR."""
    environment: Mapping[str, str] = field(repr=False)
    """The server's own environment."""
    output_cap: int = STREAM_CAP
    """Bytes kept of each stream of a command."""
    platform: str = sys.platform
    namespaces: bool = True
    """False disables namespaces, as on a kernel without them."""
    roots: ServerRoots = field(init=False, repr=False)
    """The writable roots of all conversations of this server."""
    _launcher: LauncherProcess = field(init=False, repr=False)
    _programs: Programs = field(init=False, repr=False)
    _login_shells: LoginShells = field(init=False, repr=False)
    _state: SandboxState | None = field(init=False, default=None)
    _running: list[CommandSpec | None] = field(init=False, default_factory=list, repr=False)
    """The commands that run. None: it only shows how a login shell begins."""
    _probed_at: float = field(init=False, default=0.0)
    """Time of the last probe."""
    _sessions: TaskGroup = field(init=False, repr=False)
    _probing: anyio.Lock = field(
        init=False, default_factory=lambda: anyio.Lock(fast_acquire=True), repr=False
    )

    def __post_init__(self) -> None:
        self.roots = ServerRoots(self.tmpdir)
        self._launcher = LauncherProcess(self.python, self.environment)
        self._programs = Programs(self.python, self.home)
        self._login_shells = LoginShells(self.home)
        self._sessions = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._sessions.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        finally:
            self._sessions.cancel_scope.cancel()
            await self._sessions.__aexit__(kind, error, trace)

    @property
    def launcher_pid(self) -> int | None:
        """The process that starts commands; None before the first."""
        return self._launcher.pid

    @property
    def environment_for_commands(self) -> Mapping[str, str]:
        """The environment that policies filter: the server's own, with our programs on its PATH."""
        return self._programs.added_to(self.environment)

    @property
    def busy(self) -> bool:
        """Whether a command runs, of any conversation."""
        return bool(self._running)

    def runs_in(self, folder: str) -> bool:
        """Tell whether a command runs, of any conversation, that works in the folder at this real path or around it, or
        may write in it."""
        return any(spec is not None and _concerns(spec, folder) for spec in self._running)

    @contextmanager
    def _counted(self, spec: CommandSpec | None) -> Iterator[None]:
        self._running.append(spec)
        try:
            yield
        finally:
            self._running.remove(spec)

    def warm_up(self) -> None:
        """Start the launcher ahead of the first command; this takes about two milliseconds."""
        self._launcher.start()

    def plan(
        self, policy: SandboxPolicy, cwd: str, roots: ConversationRoots | None = None
    ) -> SandboxPlan | None:
        """The plan for a policy whose first writable root is `cwd`; None for full access. Reads the disk.

        `roots` are those of the conversation; without one, names are resolved now.
        """
        found = inspect(policy, cwd, home=self.home, roots=roots or self.roots.once())
        plan = make_plan(policy, found)
        if plan is not None:
            self.roots.written.update(plan.writable_roots)
        return plan

    async def run(self, spec: CommandSpec, on_output: OnOutput) -> ExecResult:
        """Run a command to its end. Raises LaunchError or SandboxUnavailable if nothing ran."""
        begun = await self._begun_early(spec)
        with self._counted(begun):
            return await self._run(begun, on_output)

    async def _begun_early(self, spec: CommandSpec) -> CommandSpec:
        """The command without its profile, where what that leaves is known."""
        if self._login_shells.used(spec):
            self._sessions.start_soon(self._record_login_shell, spec, name="login shell")
        else:
            await self._login_shells.recorded(spec)
        return self._login_shells.taken_over(spec)

    async def _run(self, spec: CommandSpec, on_output: OnOutput) -> ExecResult:
        confinement = await self._confinement(spec)
        return await run.run_to_end(
            self._launcher, self._wrapped(spec), confinement, on_output, self.output_cap
        )

    async def _record_login_shell(self, spec: CommandSpec) -> None:
        async def run_silently(recording: CommandSpec) -> ExecResult:
            with self._counted(None):
                return await self._run(recording, lambda stream, data: None)

        try:
            await self._login_shells.record(spec, run_silently)
        except (CoreError, OSError) as error:
            log.info("the start of a login shell is not recorded: %s", error)

    async def open_session(self, spec: CommandSpec, *, columns: int = 80, rows: int = 24) -> pty.PtySession:
        """Start a command on its own terminal; the caller closes the session. `timeout_ms` is ignored."""
        confinement = await self._confinement(spec)
        wrapped = self._wrapped(await self._begun_early(spec))
        session = await pty.open_session(self._launcher, wrapped, confinement, columns, rows)
        self._sessions.start_soon(self._serve_session, session, wrapped, name="terminal session")
        return session

    async def _serve_session(self, session: pty.PtySession, spec: CommandSpec) -> None:
        with self._counted(spec):
            await session.serve()

    async def open_streamed(
        self, spec: CommandSpec, *, stdin: bool = False, terminal: TerminalSize | None = None
    ) -> StreamedCommand:
        """Start a command whose output is taken piece by piece; the caller calls `run`. `timeout_ms` is ignored."""
        confinement = await self._confinement(spec)
        return await open_streamed(
            self._launcher, self._wrapped(spec), confinement, stdin=stdin, terminal=terminal
        )

    async def open_service(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ServiceProcess:
        """Start a program that serves this server, with the user's rights and exactly this environment. The launcher
        kills it and its descendants at the latest when this server ends or dies. Raises LaunchError.
        """
        return await open_service(self._launcher, CommandSpec(argv=tuple(argv), env=env, cwd=cwd))

    async def sandbox_state(self) -> SandboxState:
        """How this machine can confine commands, found by running a probe. A full result is final; a lower one is
        probed again from time to time. Raises SandboxShortage.
        """
        async with self._probing:
            if self._state is None:
                self._state = await self._find_state()
                self._probed_at = anyio.current_time()
            elif self._state.level != "full" and anyio.current_time() - self._probed_at > RECHECK_SECONDS:
                self._probed_at = anyio.current_time()
                await self._probe_again()
            return self._state

    async def sandbox_layers(self) -> tuple[SandboxLayer, ...]:
        """Which layers of the sandbox hold, each tried alone, beside `sandbox_state`. Raises SandboxShortage."""
        if self.platform == "linux":
            return await probing.find_layers(self._launcher, self.python, self.home)
        state = await self.sandbox_state()
        return (SandboxLayer("sandbox-exec", None if state.level == "full" else state.reason),)

    async def _probe_again(self) -> None:
        """Only a full result replaces the first one: clients were warned about the gaps of exactly that one."""
        with suppress(SandboxUnavailable, LaunchError):
            state = await self._find_state()
            if state.level == "full":
                log.warning("the full sandbox is available now")
                self._state = state

    async def close(self) -> None:
        """End the launcher and every process that it started."""
        await self._launcher.close()

    async def _confinement(self, spec: CommandSpec) -> Confinement | None:
        if spec.sandbox is None:
            return None
        state = await self.sandbox_state()
        if state.level == "none":
            raise SandboxUnavailable(str(remedies.no_sandbox(state.reason)))
        if self.platform == "darwin":
            return None
        return Confinement(
            namespaces=state.level == "full",
            landlock=probing.landlock_rights(network=spec.sandbox.network, version=state.landlock_abi),
        )

    def _wrapped(self, spec: CommandSpec) -> CommandSpec:
        if spec.sandbox is None or self.platform != "darwin":
            return spec
        return replace(spec, argv=macos.wrap(spec.argv, spec.sandbox))

    async def _find_state(self) -> SandboxState:
        if self.platform == "linux":
            return await probing.find_state(
                self._launcher, self.python, self.home, namespaces=self.namespaces
            )
        if self.platform == "darwin" and os.access(macos.SANDBOX_EXEC, os.X_OK):
            return SandboxState("full")
        return SandboxState("none", "no sandbox is known for this system")


def _concerns(spec: CommandSpec, folder: str) -> bool:
    cwd, roots = real_path(spec.cwd), () if spec.sandbox is None else spec.sandbox.writable_roots
    return within(folder, cwd) or any(within(place, folder) for place in (cwd, *roots))
