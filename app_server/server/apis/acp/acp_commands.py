"""Slash commands: those of the server and the prompts that the user keeps as files. Pure.

A prompt that begins with a slash and a known name is a command; any other prompt goes to the model unchanged.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from msgspec import Struct

from app_server.engine.session.review_texts import (
    against_branch,
    as_instructed,
    of_commit,
    uncommitted_changes,
)
from app_server.engine.support.prompt_text import argument_hint, filled_in
from app_server.server.apis.acp.formatting import one_line
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import ReviewRequest
from app_server_protocol.engine.notices import CustomPrompt


class Builtin(Enum):
    """The commands of the server: the name that is typed, a description, and a hint of the argument that may follow."""

    COMPACT = "compact", "Summarise the conversation, to make room in the context window"
    REVIEW = "review", "Review the changes that are not committed, or what you say", "[instructions]"
    REVIEW_BRANCH = "review-branch", "Review the changes against a base branch", "branch"
    REVIEW_COMMIT = "review-commit", "Review one commit", "sha"
    UNDO = "undo", "Put the files back to where they were before the last turn; the conversation stays"
    REDO = "redo", "Put back what the last /undo or /rewind took back"
    REWIND = "rewind", "Go back to before a message, with files and conversation", "[number]"
    INIT = "init", "Write an AGENTS.md that guides agents in this repository"
    STATUS = "status", "Show model, mode, tokens and where the session is stored"
    MCP = "mcp", "List the MCP servers and their tools"
    HOOKS = "hooks", "List the hooks, and agree to those that may run", "trust|off|on NUMBER"
    LOGOUT = "logout", "Delete the stored login"

    def __init__(self, word: str, description: str, hint: str | None = None) -> None:
        self.word, self.description, self.hint = word, description, hint


RESTORES: Final = frozenset({Builtin.UNDO, Builtin.REDO, Builtin.REWIND})
"""Commands that need checkpoints."""


def _shown(name: str, description: str, hint: str | None) -> dict[str, Json]:
    taken = {} if hint is None else {"input": {"hint": hint}}
    return {"name": name, "description": description, **taken}


PREFIX: Final = "prompts:"
"""Prefix of a user's prompt whose name is also the name of a command of the server."""

_COMMAND: Final = r"(?s)/([\w.:-]+)(?:\s+(.*))?"
_BRANCH: Final = r"(?!-)[\w./@+-]{1,200}"

INIT_PROMPT: Final = """\
Write a file AGENTS.md for this repository: a guide for people and agents who contribute to it. If there is one \
already, improve it instead of replacing it.

Look around first. Then say, in short sections with headings: how the project is structured and where code, tests and \
assets are; the commands to build, run and test it; the style of the code and how names are chosen; how tests are \
written and which to run before a change is handed in; and how commits and pull requests look here, as the history \
shows. Keep it under 400 words, with examples of real paths and commands, and leave out what you do not know."""


class BuiltinCommand(Struct, frozen=True):
    name: Builtin
    rest: str


class PromptCommand(Struct, frozen=True):
    """A user's prompt with its arguments filled in."""

    text: str


class BadArguments(ValueError):
    """Raised if the argument of a slash command is invalid; its text says what was expected."""


class CommandList(Struct, frozen=True):
    """The commands of one session."""

    prompts: tuple[CustomPrompt, ...] = ()
    undo: bool = True

    def shown(self) -> list[dict[str, Json]]:
        """Return the commands as they are sent to clients."""
        offered = (each for each in Builtin if self.undo or each not in RESTORES)
        commands = [_shown(each.word, each.description, each.hint) for each in offered]
        for name, prompt in self._named().items():
            description = one_line(prompt.description or prompt.content) or "A prompt of yours"
            commands.append(_shown(name, description, prompt.argument_hint or argument_hint(prompt.content)))
        return commands

    def find(self, text: str) -> BuiltinCommand | PromptCommand | None:
        """Return the command that a prompt with this text names; None if the prompt is for the model."""
        match = re.fullmatch(_COMMAND, text.strip())
        if match is None:
            return None
        name, rest = match[1], (match[2] or "").strip()
        builtin = _BUILTINS.get(name)
        if builtin is not None and (self.undo or builtin not in RESTORES):
            return BuiltinCommand(builtin, rest)
        prompt = self._named().get(name)
        return None if prompt is None else PromptCommand(filled_in(prompt.content, rest))

    def _named(self) -> dict[str, CustomPrompt]:
        named: dict[str, CustomPrompt] = {}
        for prompt in self.prompts:
            if re.fullmatch(r"[\w.:-]+", prompt.name):
                named[f"{PREFIX}{prompt.name}" if prompt.name in _BUILTINS else prompt.name] = prompt
        return named


_BUILTINS: Final = {each.word: each for each in Builtin}


def review_request(command: BuiltinCommand) -> ReviewRequest:
    """Return the review that a command asks for. Raises BadArguments."""
    rest = command.rest
    match command.name:
        case Builtin.REVIEW_BRANCH:
            _require_revision(rest, "/review-branch expects the name of a branch")
            return against_branch(rest, None)
        case Builtin.REVIEW_COMMIT:
            _require_revision(rest, "/review-commit expects a commit")
            return of_commit(rest, None)
        case _:
            return as_instructed(rest) if rest else uncommitted_changes()


def _require_revision(text: str, expected: str) -> None:
    """Check the name of a revision, because it becomes part of a command line that the model reads."""
    if not re.fullmatch(_BRANCH, text):
        raise BadArguments(expected)
