"""Builds git commands that execute nothing of an untrusted repository.

A repository's configuration can name programs in a dozen places. The command line overrides settings with fixed names.
Filters, merge drivers and diff drivers have arbitrary names, so this server runs only commands that never use them: no
`add`, `status`, `checkout` or diff of the working tree. The command line names the repository, so that git does not
discover one: `core.worktree` and planted bare repositories have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from app_server.core.git.repository import Repository
from protocol.records import dataclass

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


@dataclass(frozen=True, slots=True)
class GitCommand:
    """One git command: arguments, environment and folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


@dataclass(frozen=True, slots=True)
class GitProgram:
    """The git program, and what it inherits of the server's environment."""

    path: str = "git"
    search_path: str = "/usr/local/bin:/usr/bin:/bin"
    """PATH: git finds its own subcommands without it, but some need a PATH."""
    excludes_file: Path | None = None
    """The user's own list of files to ignore everywhere."""

    def command(
        self, repository: Repository, arguments: Sequence[str], extra_env: Mapping[str, str] | None = None
    ) -> GitCommand:
        """Git with these arguments, in that repository and no other."""
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
        """`git --version`, in no repository."""
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
            # No fetch of objects that a partial clone lacks: a transport is a program that the repository may name.
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": "none",
        }
