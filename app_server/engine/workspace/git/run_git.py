"""Builds git commands that execute nothing of an untrusted repository, and runs them with limits for time and output.

A repository's configuration can name programs in a dozen places. The command line overrides settings with fixed names.
Filters, merge drivers and diff drivers have arbitrary names, so this server runs only commands that never use them: no
`add`, `status`, `checkout` or diff of the working tree. The command line names the repository, so that git does not
discover one: `core.worktree` and bare repositories that a command has placed have no effect.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import anyio.abc
import msgspec
from msgspec import Struct

from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.private_folders import private_folder
from app_server.engine.workspace.git.repository import Repository

_OVERRIDES = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.sshCommand=false",
    "core.gitProxy=",
    "core.askPass=false",
    "core.editor=false",
    "core.pager=cat",
    "core.attributesFile=/dev/null",
    "core.alternateRefsCommand=false",
    "core.splitIndex=false",
    "core.untrackedCache=false",
    "core.quotePath=true",
    "core.precomposeUnicode=false",
    "credential.helper=",
    "protocol.allow=never",
    "diff.external=",
    "diff.orderFile=/dev/null",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.relative=false",
    "diff.submodule=short",
    "color.ui=never",
    "commit.gpgSign=false",
    "gpg.program=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
    "uploadpack.packObjectsHook=",
)


class GitCommand(Struct, frozen=True):
    """One git command: arguments, environment and folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


USUAL_FOLDERS = "/usr/local/bin:/usr/bin:/bin"


def identity_of(program: str) -> tuple[int, int, int] | None:
    """Return values that change if the file of a program is written or replaced; None if there is no file."""
    try:
        status = os.stat(program)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


class GitProgram(Struct, frozen=True):
    """The git program, and what it inherits from the server's environment."""

    path: str = "git"
    search_path: str = USUAL_FOLDERS
    """Value of PATH. Git finds its own subcommands without it, but some need a PATH."""
    identity: tuple[int, int, int] | None = None
    """Identity of the file at `path`: it is not run if that has changed. None for a program in a folder where only root
    writes.
    """
    excludes_file: Path | None = None
    """The user's own list of files to ignore everywhere; None if there is none."""

    def require_same(self) -> None:
        """Raise GitError if the program has changed since it was found."""
        if self.identity is not None and identity_of(self.path) != self.identity:
            raise GitError(
                f"{self.path} was changed since the server started, and is not run; restart the server"
            )

    def file(self) -> str:
        """Return the path of the program, for a command that runs with the user's PATH, on which other programs may
        come first. Raises GitError like `command`.
        """
        self.require_same()
        return shutil.which(self.path, path=self.search_path) or self.path

    def command(
        self, repository: Repository, arguments: Sequence[str], extra_env: Mapping[str, str] | None = None
    ) -> GitCommand:
        """Build a git command with these arguments, for that repository and no other. Raises GitError if the program
        has changed since it was found.
        """
        self.require_same()
        overrides = [*_OVERRIDES, f"core.excludesFile={self.excludes_file or '/dev/null'}"]
        argv = (
            self.path,
            f"--git-dir={repository.git_dir}",
            f"--work-tree={repository.root}",
            "--no-optional-locks",
            "--no-replace-objects",
            "--no-pager",
            "--literal-pathspecs",
            *(part for override in overrides for part in ("-c", override)),
            *arguments,
        )
        return GitCommand(argv, {**self._environment(), **(extra_env or {})}, repository.root)

    def version_command(self) -> GitCommand:
        """Build `git --version`, without a repository."""
        return GitCommand((self.path, "--version"), self._environment(), Path("/"))

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": self.search_path,
            "LC_ALL": "C",
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "false",
            "SSH_ASKPASS": "false",
            "GIT_SSH_COMMAND": "false",
            "GIT_PAGER": "cat",
            "GIT_EDITOR": "false",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            # Git must not fetch objects that a partial clone lacks: a transport is a program that the repository may
            # name.
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",
        }


DEFAULT_TIMEOUT = 30.0
MAX_OUTPUT_BYTES = 128 * 1024 * 1024


class GitResult(Struct, frozen=True):
    """The exit code and the output of a command."""

    exit_code: int
    stdout: bytes


async def run_git(command: GitCommand, stdin: bytes = b"", timeout: float = DEFAULT_TIMEOUT) -> GitResult:
    """Run a command with this stdin. Raises `GitError` if it cannot run or exceeds its limits."""
    try:
        process = await anyio.open_process(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if not os.path.isdir(command.cwd):
            raise GitError("git cannot be run: its folder does not exist") from error
        raise GitError(str(user_messages.git_missing(command.env.get("PATH", "the PATH")))) from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the system starts no more threads
        raise GitError(f"git cannot be run: {error.__class__.__name__}") from error
    try:
        with anyio.fail_after(timeout):
            return await _communicate(process, stdin)
    except TimeoutError:
        raise GitError(f"git did not end within {timeout:g} seconds") from None
    finally:
        await _end(process)


async def _communicate(process: anyio.abc.Process, stdin: bytes) -> GitResult:
    assert process.stdin is not None
    assert process.stdout is not None
    out = bytearray()
    async with anyio.create_task_group() as group:
        group.start_soon(_feed, process.stdin, stdin)
        async for part in process.stdout:
            out += part[: MAX_OUTPUT_BYTES + 1 - len(out)]
    code = await process.wait()
    if len(out) > MAX_OUTPUT_BYTES:
        raise GitError("git printed more than can be taken")
    return GitResult(code, bytes(out))


async def _feed(stream: anyio.abc.ByteSendStream, data: bytes) -> None:
    try:
        await stream.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # The command ended without reading everything; its exit code is the reason.
    finally:
        with anyio.CancelScope(shield=True):
            await stream.aclose()


async def _end(process: anyio.abc.Process) -> None:
    """End the process and its descendants, and close its pipes."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        with anyio.move_on_after(2, shield=True):
            await process.wait()
    if process.returncode is not None:
        await process.aclose()
        return
    # Nothing ends a process that hangs in the kernel, and `process.aclose` would wait for it.
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await stream.aclose()


TIME_LIMIT = 10.0
"""Timeout of a whole snapshot, in seconds: tools wait for it."""


class Git(Struct, frozen=True):
    """Runs git commands, and provides folders for temporary files."""

    home: Path
    """The server's home. Snapshots never contain its credentials."""
    program: GitProgram = msgspec.field(default_factory=GitProgram)

    def scratch_folder(self) -> AbstractContextManager[str]:
        """Return a temporary folder that only the user can access, as a context manager. Raises `OSError`."""
        return private_folder(self.home, "git")

    async def output(
        self,
        repository: Repository,
        arguments: Sequence[str],
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> bytes:
        """Return the output of a command. Raises `GitError` if it fails."""
        result = await run_git(self.program.command(repository, arguments, env), stdin, timeout)
        if result.exit_code != 0:
            raise GitError(f"git {arguments[0]} failed with exit code {result.exit_code}")
        return result.stdout

    async def text(
        self, repository: Repository, arguments: Sequence[str], env: Mapping[str, str] | None = None
    ) -> str:
        """Return the one word that a command prints, such as an object id. Raises `GitError` if it fails."""
        return (await self.output(repository, arguments, env=env)).decode("ascii", "replace").strip()

    async def commit(self, repository: Repository, revision: str) -> str | None:
        """Return the id of a commit; None if there is none."""
        try:
            return await self.text(repository, ["rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"])
        except GitError:
            return None

    async def merge_base(self, repository: Repository, branch: str) -> str | None:
        """Return the newest common commit of HEAD and a branch; None if the branch does not exist, or if the histories
        have no common commit.
        """
        try:
            # The name comes from a client: after this mark it cannot be an option.
            verify = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{branch}^{{commit}}"]
            tip = await self.text(repository, verify)
            return await self.text(repository, ["merge-base", "HEAD", tip]) or None
        except (GitError, OSError, ValueError):
            return None

    async def outputs(
        self, repository: Repository, *commands: Sequence[str], env: Mapping[str, str] | None = None
    ) -> list[bytes]:
        """Return the outputs of these commands, run concurrently. Raises the first `GitError`."""
        found: list[bytes | GitError] = [b""] * len(commands)

        async def run(number: int, arguments: Sequence[str]) -> None:
            try:
                found[number] = await self.output(repository, arguments, env=env)
            except GitError as error:
                found[number] = error

        async with anyio.create_task_group() as group:
            for number, arguments in enumerate(commands):
                group.start_soon(run, number, arguments)
        for one in found:
            if isinstance(one, GitError):
                raise one
        return [one for one in found if isinstance(one, bytes)]


def objects_in(folder: str, repository: Repository) -> dict[str, str]:
    """Return the environment for git to write objects to `folder`, and still find those of the repository."""
    path = os.fsencode(repository.objects_dir)
    quoted = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    alternate = os.fsdecode(b'"' + quoted + b'"')
    return {"GIT_OBJECT_DIRECTORY": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": alternate}
