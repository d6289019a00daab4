"""The interface of the machine outside of conversations, for all APIs: commands, searches, repositories and prompts,
with the rights that the configuration gives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from app_server.engine.config.client_limits import check_sandbox, temporary_folder
from app_server.engine.config.config_values import RequestOverrides
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.context import custom_prompts
from app_server.engine.sandbox.exec import command, command_process
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.plan import RootOptions
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.fs import client_files, watching
from app_server.engine.workspace.git import snapshot
from app_server.engine.workspace.git.repository import find_repository
from app_server.engine.workspace.git.run_git import Git
from app_server_protocol.engine.notices import CustomPrompt
from app_server_protocol.policy import SandboxPolicy

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from app_server.engine.context.skills.skill_catalog import SkillCatalog
    from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
    from app_server.engine.sandbox.exec.command_process import Process, TakeOutput, TerminalSize
    from app_server.engine.workspace.files.search import FileSearch
    from app_server.engine.workspace.fs.client_files import ClientFiles
    from app_server.engine.workspace.fs.watching import FileWatcher, NotifyChanged
    from app_server.engine.workspace.git.snapshot import DiffToRemote


TERMINAL_KIND = "xterm"
"""Value of $TERM for a command on a terminal, if nothing else sets it."""

log = logging.getLogger(__name__)


Result = TypeVar("Result")


class WantedCommand(Struct, frozen=True, kw_only=True):
    """A command that a client requests."""

    argv: tuple[str, ...]
    cwd: str | None
    """Working directory, relative to that of the server; None for that of the server."""
    policy: SandboxPolicy | None
    """Sandbox policy; None if the configured one holds."""
    timeout_ms: int | None
    request: RequestOverrides | None = None
    environment: Mapping[str, str | None] | None = None
    """Variables in addition to those of the configuration; None removes a variable."""
    terminal: bool = False


class Host(Struct, frozen=True):
    """The uses of the machine that clients make outside of conversations."""

    settings: UserSettings
    runner: CommandRunner
    git: Git
    search: Lazy[FileSearch]
    """Search for files, which caches its listings."""
    skills: Lazy[SkillCatalog]

    def prepare(self, wanted: WantedCommand) -> CommandSpec:
        """Convert a client's request into a command that can run. Raises ConfigError, also if it asks for more rights
        than the client may have.
        """
        config = self.settings.load(wanted.request)
        cwd = str(self.settings.cwd / (wanted.cwd or ""))
        policy = wanted.policy or config.thread.sandbox_policy
        check_sandbox(config.fence, policy, cwd)
        tmpdir = temporary_folder(config.fence, self.settings.environment)
        options = RootOptions(tmpdir, config.permissions.protected_folders)
        plan = self.runner.plan(policy, cwd, options=options)
        for notice in plan.notices if plan is not None else ():
            log.warning("a command of the client: %s", notice)
        environment = command.command_environment(
            config.permissions.environment,
            self.runner.environment_for_commands(self.settings.environment),
            plan=plan,
            withheld=config.credential_variables(),
        )
        if wanted.terminal:
            environment.setdefault("TERM", TERMINAL_KIND)
        changed = {**environment, **(wanted.environment or {})}
        return command.CommandSpec(
            argv=wanted.argv,
            cwd=cwd,
            env={name: value for name, value in changed.items() if value is not None},
            timeout_ms=wanted.timeout_ms,
            sandbox=plan,
        )

    async def run(self, wanted: WantedCommand) -> ExecResult:
        """Run a command to its end. Raises LaunchError or SandboxUnavailable if nothing ran, and the errors of
        `prepare`.
        """
        return await self.runner.run(self.prepare(wanted), lambda stream, data: None)

    async def open(
        self, spec: CommandSpec, *, stdin: bool, terminal: bool, size: TerminalSize | None = None
    ) -> Process:
        """Start a command whose output is taken piece by piece."""
        on_terminal = (size or command_process.USUAL_SIZE) if terminal else None
        return await self.runner.open_streamed(spec, stdin=stdin, terminal=on_terminal)

    async def follow(self, process: Process, take: TakeOutput, timeout_ms: int | None) -> int:
        """Pass on the output of an open command until it has ended; return its exit code. Raises LaunchError."""
        return await command_process.hand_on(process, take, timeout_ms)

    async def with_files(self, work: Callable[[ClientFiles], Result]) -> Result:
        """Run work with files in a thread. Raises OSError and FileRefused."""
        files = client_files.ClientFiles(str(self.settings.home))
        return await run_in_thread(work, files, abandon_on_cancel=True)

    def watcher(self, notify: NotifyChanged, tasks: TaskGroup) -> FileWatcher:
        """Return a watcher without watches, whose tasks run in `tasks`."""
        return watching.FileWatcher(notify, tasks)

    async def diff_to_remote(self, folder: Path) -> DiffToRemote | None:
        """Return the changes of a working tree that no remote has; None without a known remote, or if git fails."""
        return await snapshot.diff_to_remote(self.git, folder)

    async def merge_base(self, folder: Path, branch: str) -> str | None:
        """Return the newest commit that HEAD and a branch have in common; None if there is none."""
        repository = find_repository(folder)
        return None if repository is None else await self.git.merge_base(repository, branch)

    async def prompts(self) -> tuple[CustomPrompt, ...]:
        """Return the prompts in the home, sorted by name."""
        return await run_in_thread(
            custom_prompts.discover_prompts, self.settings.home / custom_prompts.FOLDER
        )
