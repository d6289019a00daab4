"""The one door to running commands: owns the launcher, knows what the machine can confine, makes plans.

Owned by the composition root as a context manager. What it is given at construction is all that it knows
of the server's surroundings.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from app_server.core.errors import LaunchError, SandboxUnavailable
from app_server.core.exec import probing, pty, run
from app_server.core.exec.command import CommandSpec, ExecResult, OnOutput
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.output import STREAM_CAP
from app_server.core.exec.programs import Programs
from app_server.core.exec.request import Confinement
from app_server.core.exec.service import ServiceProcess, open_service
from app_server.core.sandbox import landlock_rights, macos
from app_server.core.sandbox.inspect import inspect
from app_server.core.sandbox.plan import SandboxPlan, make_plan
from app_server.core.sandbox.probe import SandboxState
from app_server.core.sandbox.roots import ConversationRoots, ServerRoots
from protocol.policy import SandboxPolicy
from protocol.records import dataclass

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0
"""What was switched off when the server started may be on by now."""


@dataclass(slots=True)
class CommandRunner:
    """Runs commands for all conversations of one server."""

    python: str
    """The interpreter that runs the launcher."""
    home: str
    """The server's home: read-only for commands, its secrets hidden."""
    tmpdir: str | None
    """$TMPDIR of the server, or None."""
    environment: Mapping[str, str] = field(repr=False)
    """The server's own environment."""
    output_cap: int = STREAM_CAP
    """So many bytes of each stream of a command are kept."""
    platform: str = sys.platform
    namespaces: bool = True
    """False leaves out the layer of namespaces, as a kernel without them would."""
    roots: ServerRoots = field(init=False, repr=False)
    """What the conversations of this server were given to write."""
    _launcher: LauncherProcess = field(init=False, repr=False)
    _programs: Programs = field(init=False, repr=False)
    _state: SandboxState | None = field(init=False, default=None)
    _tried: float = field(init=False, default=0.0)
    """When the machine was looked at last."""
    _sessions: TaskGroup = field(init=False, repr=False)
    _probing: anyio.Lock = field(
        init=False, default_factory=lambda: anyio.Lock(fast_acquire=True), repr=False
    )

    def __post_init__(self) -> None:
        self.roots = ServerRoots(self.tmpdir)
        self._launcher = LauncherProcess(self.python, self.environment)
        self._programs = Programs(self.python, self.home)
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
        """What policies filter: the server's own environment, with the programs that commands get from us."""
        return self._programs.added_to(self.environment)

    def warm_up(self) -> None:
        """Starts the launcher ahead of the first command; costs the server about two milliseconds."""
        self._launcher.start()

    def plan(
        self, policy: SandboxPolicy, cwd: str, roots: ConversationRoots | None = None
    ) -> SandboxPlan | None:
        """The plan for a policy whose first writable root is `cwd`; None for full access. Reads the disk.

        `roots` are those of the conversation; without one, names stand for what they lead to now.
        """
        found = inspect(policy, cwd, home=self.home, roots=roots or self.roots.once())
        plan = make_plan(policy, found)
        if plan is not None:
            self.roots.written.update(plan.writable_roots)
        return plan

    async def run(self, spec: CommandSpec, on_output: OnOutput) -> ExecResult:
        """Runs a command to its end. Raises `LaunchError` or `SandboxUnavailable` where nothing ran."""
        confinement = await self._confinement(spec)
        return await run.run(self._launcher, self._wrapped(spec), confinement, on_output, self.output_cap)

    async def open_session(self, spec: CommandSpec, *, columns: int = 80, rows: int = 24) -> pty.PtySession:
        """Starts a command on a terminal of its own; it lives until it ends or is closed. `timeout_ms` is
        not kept.
        """
        confinement = await self._confinement(spec)
        session = await pty.open_session(self._launcher, self._wrapped(spec), confinement, columns, rows)
        self._sessions.start_soon(session.serve, name="terminal session")
        return session

    async def open_service(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ServiceProcess:
        """Starts a program that serves this server, with the user's rights and exactly this environment. It is ended
        with all that it started, at the latest when this server ends, however that happens. Raises LaunchError.
        """
        return await open_service(self._launcher, CommandSpec(argv=tuple(argv), env=env, cwd=cwd))

    async def sandbox_state(self) -> SandboxState:
        """What this machine's kernel really confines, found out by running a victim. The full sandbox is found once and
        never given up; while there is less, the machine is looked at again now and then. Raises SandboxShortage.
        """
        async with self._probing:
            if self._state is None:
                self._state = await self._find_state()
                self._tried = anyio.current_time()
            elif self._state.level != "full" and anyio.current_time() - self._tried > RECHECK_SECONDS:
                self._tried = anyio.current_time()
                await self._look_again()
            return self._state

    async def _look_again(self) -> None:
        """Only the full sandbox replaces what was found: clients were told what the lower one does not cover."""
        with suppress(SandboxUnavailable, LaunchError):
            state = await self._find_state()
            if state.level == "full":
                log.warning("the full sandbox is available now")
                self._state = state

    async def close(self) -> None:
        """Ends the launcher and every process that it started."""
        await self._launcher.close()

    async def _confinement(self, spec: CommandSpec) -> Confinement | None:
        if spec.sandbox is None:
            return None
        state = await self.sandbox_state()
        if state.level == "none":
            raise SandboxUnavailable(f"this machine cannot confine commands: {state.reason}")
        if self.platform == "darwin":
            return None
        return Confinement(
            namespaces=state.level == "full",
            landlock=landlock_rights.rights(network=spec.sandbox.network, version=state.landlock_abi),
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
