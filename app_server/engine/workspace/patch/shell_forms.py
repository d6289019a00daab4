"""Recognises a command line that is a patch: `apply_patch PATCH`, or a shell script that does only that.

Recognised scripts are one `apply_patch` with a here-document or a single-quoted argument, optionally after `cd DIR &&`.
Anything else that mentions apply_patch is an ordinary command.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.engine.approvals.shell import syntax_trees
from app_server.engine.workspace.patch.parse import BEGIN, PatchSyntaxError, parse_patch

if TYPE_CHECKING:
    from tree_sitter import Node

PROGRAMS = ("apply_patch", "applypatch")
SHELLS = ("bash", "sh", "zsh")
SCRIPT_FLAGS = ("-c", "-lc")
MAX_SECONDS = 0.3
"""Maximum processor time of the shell parser, in seconds. A patch of several megabytes takes a fraction of it."""


class PatchCall(Struct, frozen=True):
    patch: str
    workdir: str | None = None
    """Argument of `cd`, relative to the command's working directory; None without a `cd`."""


class ParseProblem(Struct, frozen=True):
    """The command is meant as a patch but is not a valid one. The message is for the model."""

    message: str


ShellForm = PatchCall | ParseProblem | None
"""Result of looking for a patch in a command; None if the command is not a patch."""

WITHOUT_PROGRAM = ParseProblem(
    "apply_patch verification failed: this is a patch without the command that applies it; "
    'call ["apply_patch", "<patch>"]'
)


def find_patch(argv: Sequence[str]) -> ShellForm:
    match list(argv):
        case [program, patch] if program in PROGRAMS:
            return PatchCall(patch)
        case [patch] if _is_patch(patch):
            return WITHOUT_PROGRAM
        case [shell, flag, script] if os.path.basename(shell) in SHELLS and flag in SCRIPT_FLAGS:
            if _is_patch(script):
                return WITHOUT_PROGRAM
            return _in_script(script)
        case _:
            return None


def _is_patch(text: str) -> bool:
    if BEGIN not in text:
        return False
    try:
        parse_patch(text)
    except PatchSyntaxError:
        return False
    return True


def _in_script(script: str) -> ShellForm:
    if not any(program in script for program in PROGRAMS):
        return None
    try:
        source = script.encode("utf-8")
    except UnicodeEncodeError:
        return None
    root = syntax_trees.parse(source, seconds=MAX_SECONDS)
    if root is None or root.has_error or root.named_child_count != 1:
        return None
    statement = root.named_children[0]
    heredoc = None
    if statement.type == "redirected_statement":
        if statement.named_child_count != 2 or statement.named_children[1].type != "heredoc_redirect":
            return None
        statement, redirect = statement.named_children
        heredoc = _heredoc_body(redirect, source)
        if heredoc is None:
            return None
    return _statement(statement, heredoc, source)


def _statement(statement: Node, heredoc: str | None, source: bytes) -> ShellForm:
    workdir = None
    if statement.type == "list":
        if [child.type for child in statement.children] != ["command", "&&", "command"]:
            return None
        workdir = _cd_argument(statement.children[0], source)
        if workdir is None:
            return None
        statement = statement.children[2]
    words = _words(statement, source)
    match words, heredoc:
        case [program], str() if program in PROGRAMS:
            return PatchCall(heredoc, workdir)
        case [program, patch], None if program in PROGRAMS:
            return PatchCall(patch, workdir)
        case _:
            return None


def _cd_argument(command: Node, source: bytes) -> str | None:
    match _words(command, source):
        case ["cd", folder] if folder and not folder.startswith("-"):
            return folder
        case _:
            return None


def _words(command: Node, source: bytes) -> list[str]:
    """Return the words of a simple command; empty if the shell would expand any of them."""
    if command.type != "command":
        return []
    words: list[str] = []
    for child in command.named_children:
        word = _literal(child.named_children[0] if child.type == "command_name" else child, source)
        if word is None:
            return []
        words.append(word)
    return words


SPECIAL = frozenset("\\$`*?[]{}~")


def _literal(node: Node, source: bytes) -> str | None:
    text = syntax_trees.text_of(node, source)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        inner = text[1:-1]
        return inner if not SPECIAL & set(inner) - set("*?[]{}~") else None
    return text if node.type == "word" and not SPECIAL & set(text) else None


def _heredoc_body(redirect: Node, source: bytes) -> str | None:
    """Return the text of a here-document; None if its line does more, or if it feeds a descriptor other than stdin."""
    kinds = [child.type for child in redirect.children]
    if kinds[:2] != ["<<", "heredoc_start"] or any(kind not in _HEREDOC for kind in kinds):
        return None
    bodies = [child for child in redirect.children if child.type == "heredoc_body"]
    return syntax_trees.text_of(bodies[0], source) if bodies else ""


_HEREDOC = ("<<", "heredoc_start", "heredoc_body", "heredoc_end")
