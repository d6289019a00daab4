"""Decides whether a hook runs outside of the sandbox. Reads the disk.

A hook of the home may do so if nothing that it runs can have been written by a command of the thread: the consent was
for what stood there then, and a model that rewrites a script must not have it run with the user's rights. Hooks of a
project run in the thread's sandbox, unless the user's settings lift that for projects; then the same rule holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from app_server.engine.approvals.program_trust import ProgramSearch
from app_server.engine.approvals.shell.code_runners import runs_code_of_folder
from app_server.engine.approvals.shell.reachable_commands import commands_of
from app_server.engine.hooks.hook_definitions import HookHandler
from app_server.engine.support.real_path import real_path, within
from app_server_protocol.engine.hook_events import HookSource

MOST_WORDS = 256
"""Maximum number of words of a command that are looked for on the disk. A longer one runs in the sandbox."""


class HookPlaces(Struct, frozen=True, kw_only=True):
    """Facts that decide about the rights of a hook of one thread."""

    cwd: str
    environment: Mapping[str, str]
    """Environment of the hook."""
    written: Sequence[str]
    """Real paths in which commands of the thread may write."""
    read_only: Sequence[str] = ()
    """Real paths within these that they may not write."""
    exposed: Sequence[str]
    """The same, and all other folders in which commands or a repository may have created programs."""
    project_sandbox: bool = True
    """Whether hooks of a project always run in the sandbox."""

    def runs_outside(self, handler: HookHandler) -> bool:
        """Return whether a hook runs outside of the thread's sandbox."""
        if handler.source is HookSource.USER and handler.definition.sandbox is not None:
            return not handler.definition.sandbox
        if handler.source is not HookSource.USER and (self.project_sandbox or handler.definition.sandbox):
            return False
        return not self._may_be_rewritten(handler)

    def _may_be_rewritten(self, handler: HookHandler) -> bool:
        command = handler.definition.command
        if any(self._is_written(place) for place in handler.named_files):
            return True
        if runs_code_of_folder(command):
            return True
        search = ProgramSearch(self.environment, tuple(self.exposed))
        words: list[str] = []
        for found in commands_of(("/bin/sh", "-c", command)):
            if found is None:
                return True
            program = found.words[0] if found.words else "/"
            if "/" not in program and program not in _BUILTINS and not search.trusts(program):
                return True
            words += found.words
        if len(words) > MOST_WORDS:
            return True
        return any(self._is_written(place) for word in words for place in self._places(word))

    def _places(self, word: str) -> Iterator[str]:
        """Yield the existing files that a word may name."""
        values = (word, *word.split("=", 1)[1:])
        for value in values:
            for name, known in self.environment.items():
                value = (
                    value.replace(f"${{{name}}}", known).replace(f"${name}", known) if "$" in value else value
                )
            if value.startswith("~/"):
                value = os.path.join(self.environment.get("HOME", "/"), value[2:])
            path = os.path.normpath(os.path.join(self.cwd, value))
            if value and os.path.lexists(path) and path != os.path.normpath(self.cwd):
                yield path

    def _is_written(self, path: str) -> bool:
        """Return whether commands may write the file, or a link or folder on the way to it."""
        return any(
            within(place, root) and not any(within(place, kept) for kept in self.read_only)
            for place in (path, real_path(path))
            for root in self.written
        )


_BUILTINS = frozenset(
    {":", "true", "false", "test", "[", "echo", "printf", "exit", "cd", "export", "read", "set"}
)
