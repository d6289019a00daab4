"""Runs commands: owns the launcher, makes sandbox plans, tracks running commands.

The composition root owns the runner as a context manager. The runner reads neither the process environment nor the
working directory.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from app_server.engine.sandbox import inspect, make_plan
from app_server.engine.sandbox.exec import (
    command,
    command_process,
    launcher_process,
    probe,
    pty,
    service,
    shell_setup,
)
from app_server.engine.sandbox.plan import (
    NOTHING_KEPT,
    USUAL_ROOTS,
    KeptFolders,
    KnownFolders,
    RootOptions,
    SandboxFacts,
    SandboxPlan,
)
from app_server.engine.sandbox.roots import ConversationRoots, ServerRoots
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.support.limits import Limits
from app_server.engine.support.real_path import real_path, within
from app_server_protocol.policy import SandboxPolicy

if TYPE_CHECKING:
    from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult, OnOutput
    from app_server.engine.sandbox.exec.command_process import Process, TerminalSize
    from app_server.engine.sandbox.exec.launcher_process import LauncherProcess
    from app_server.engine.sandbox.exec.probe import SandboxBackend
    from app_server.engine.sandbox.exec.pty import PtySession
    from app_server.engine.sandbox.exec.service import ServiceProcess
    from app_server.engine.sandbox.exec.shell_setup import LoginShells, Programs

log = logging.getLogger(__name__)


class CommandRunner:
    """Runs commands for all conversations of one server.

    `python` runs the launcher. Commands may read the server's `home`, except for its secrets. `environment` is that of
    the launcher. `output_cap` bytes are kept of each stream of a command. No command can change the contents of the
    `kept` folders.
    """

    def __init__(
        self,
        python: str,
        home: str,
        environment: Mapping[str, str],
        output_cap: int = Limits().output_bytes,
        kept: KeptFolders = NOTHING_KEPT,
        known: Callable[[], KnownFolders] = KnownFolders,
    ) -> None:
        """`known` returns the folders of shared servers and batches of the home; it is called for each plan."""
        self.python, self.home, self.output_cap = python, home, output_cap
        self._kept, self._known = kept, known
        self.roots = ServerRoots()
        """Writable roots of all conversations of this server."""
        self._environment = environment
        self._running: list[CommandSpec | None] = []
        """Specs of the running commands. None stands for a run that only records the start of a login shell."""
        self._tasks = anyio.create_task_group()

    # Made for the first command, so that a turn without one loads no module for them.
    @cached_property
    def _launcher(self) -> LauncherProcess:
        return launcher_process.LauncherProcess(self.python, self._environment)

    @cached_property
    def sandbox(self) -> SandboxBackend:
        return probe.SandboxBackend(self._launcher, self.python, self.home, sys.platform)

    @cached_property
    def _programs(self) -> Programs:
        return shell_setup.Programs(self.python, self.home)

    @cached_property
    def _login_shells(self) -> LoginShells:
        return shell_setup.LoginShells(self.home)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        finally:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(kind, error, trace)

    def environment_for_commands(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment that policies filter: that of a client, with the server's programs on its PATH."""
        return self._programs.added_to(environment)

    @property
    def busy(self) -> bool:
        """Whether a command of any conversation runs."""
        return bool(self._running)

    @property
    def running(self) -> int:
        """The number of running commands of all conversations."""
        return len(self._running)

    def runs_in(self, folder: str) -> bool:
        """Return whether a command of any conversation runs that works in the folder at this real path or in a folder
        around it, or may write in it.
        """
        return any(spec is not None and _concerns(spec, folder) for spec in self._running)

    def warm_up(self) -> None:
        """Start the launcher before the first command; the start takes about two milliseconds."""
        self._launcher.start()

    def plan(
        self,
        policy: SandboxPolicy,
        cwd: str,
        roots: ConversationRoots | None = None,
        options: RootOptions = USUAL_ROOTS,
    ) -> SandboxPlan | None:
        """Return the plan for a policy whose first writable root is `cwd`; None for full access. Reads the disk.

        `roots` are those of the conversation; without them, names are resolved now.
        """
        plan = make_plan.make_plan(policy, self._facts(policy, cwd, roots, options))
        if plan is not None:
            self.roots.written.update(plan.written)
        return plan

    def approved_plan(
        self,
        policy: SandboxPolicy,
        cwd: str,
        roots: ConversationRoots | None = None,
        options: RootOptions = USUAL_ROOTS,
    ) -> SandboxPlan | None:
        """Return the plan for a command that the user allowed to run without the sandbox. It is None unless the policy
        hides files, because no approval reveals those. Reads the disk.
        """
        return make_plan.make_approved_plan(policy, self._facts(policy, cwd, roots, options))

    def _facts(
        self, policy: SandboxPolicy, cwd: str, roots: ConversationRoots | None, options: RootOptions
    ) -> SandboxFacts:
        return inspect.inspect(
            policy,
            cwd,
            home=self.home,
            roots=roots or self.roots.once(),
            options=options,
            known=self._known(),
            kept=self._kept,
            programs=lambda: shell_setup.program_folders(self.python, self.home),
        )

    async def run(self, spec: CommandSpec, on_output: OnOutput) -> ExecResult:
        """Run a command to its end. Raises LaunchError or SandboxUnavailable if nothing ran."""
        begun = await self._begun_early(spec)
        with self._counted(begun):
            return await self._run(begun, on_output)

    async def open_session(self, spec: CommandSpec, size: TerminalSize | None = None) -> PtySession:
        """Start a command on its own terminal, of the usual size if none is given. The caller closes the session.
        `timeout_ms` is ignored.
        """
        begun, confinement = await self.sandbox.confine(await self._begun_early(spec))
        size = size or command_process.USUAL_SIZE
        session = pty.PtySession(
            await command_process.start(self._launcher, begun, confinement, size=size, background=True)
        )
        self._tasks.start_soon(self._serve_session, session, begun, name="terminal session")
        return session

    async def open_streamed(
        self, spec: CommandSpec, *, stdin: bool = False, terminal: TerminalSize | None = None
    ) -> Process:
        """Start a command whose output is taken piece by piece. The caller calls `hand_on`. When the command has ended,
        none of its processes is left, even without a sandbox. `timeout_ms` is ignored.
        """
        spec, confinement = await self.sandbox.confine(spec)
        return await command_process.start(self._launcher, spec, confinement, stdin=stdin, size=terminal)

    async def open_service(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ServiceProcess:
        """Start a program that serves this server, with the user's rights and exactly this environment. Raises
        LaunchError.
        """
        spec = command.CommandSpec(argv=tuple(argv), env=env, cwd=cwd)
        return await service.open_service(self._launcher, spec)

    async def close(self) -> None:
        """End the launcher and every process that it started."""
        if "_launcher" in vars(self):
            await self._launcher.close()

    @contextmanager
    def _counted(self, spec: CommandSpec | None) -> Iterator[None]:
        self._running.append(spec)
        try:
            yield
        finally:
            self._running.remove(spec)

    async def _begun_early(self, spec: CommandSpec) -> CommandSpec:
        """Return the command without its profile, if the profile's effect is known."""
        if self._login_shells.used(spec):
            self._tasks.start_soon(self._record_login_shell, spec, name="login shell")
        else:
            await self._login_shells.recorded(spec)
        return self._login_shells.taken_over(spec)

    async def _run(self, spec: CommandSpec, on_output: OnOutput) -> ExecResult:
        begun, confinement = await self.sandbox.confine(spec)
        return await command_process.run_to_end(
            self._launcher, begun, confinement, on_output, self.output_cap
        )

    async def _record_login_shell(self, spec: CommandSpec) -> None:
        async def run_silently(recording: CommandSpec) -> ExecResult:
            with self._counted(None):
                return await self._run(recording, lambda stream, data: None)

        try:
            await self._login_shells.record(spec, run_silently)
        except (CoreError, OSError) as error:
            log.info("the start of a login shell is not recorded: %s", error)

    async def _serve_session(self, session: PtySession, spec: CommandSpec) -> None:
        with self._counted(spec):
            await session.serve()


def _concerns(spec: CommandSpec, folder: str) -> bool:
    cwd, roots = real_path(spec.cwd), () if spec.sandbox is None else spec.sandbox.written
    return within(folder, cwd) or any(within(place, folder) for place in (cwd, *roots))
