"""What belongs to a command in the tree of a script: its redirections, substitutions, and the stages before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from app_server.core.shell.syntax_tree import descendants

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_STAGES_BEFORE = 8

_SUBSTITUTIONS = ("command_substitution", "process_substitution")
_ENDING_IN_COMMAND = ("pipeline", "list", "negated_command")
"""What the parser takes for the body of a redirection of its last command."""


def redirections(command: Node) -> list[Node]:
    node, parent = command, command.parent
    while parent is not None and parent.type in _ENDING_IN_COMMAND and node == parent.named_children[-1]:
        node, parent = parent, parent.parent
    if parent is None or parent.type != "redirected_statement":
        return []
    return parent.children_by_field_name("redirect")


def arguments_behind(redirection: Node) -> Iterator[Node]:
    """`-rf d` in `rm 2>/dev/null -rf d`, which the parser takes for more targets of the redirection."""
    if redirection.type == "file_redirect":
        yield from redirection.children_by_field_name("destination")[1:]
    elif redirection.type == "heredoc_redirect":
        yield from redirection.children_by_field_name("argument")
        for inner in redirection.children_by_field_name("redirect"):
            yield from arguments_behind(inner)


def substitutions_in(node: Node) -> Iterator[Node]:
    return (child for child in descendants(node) if child.type in _SUBSTITUTIONS)


def stages_before(node: Node) -> Iterator[Node]:
    """The nearest stages before `node` in its pipeline, including the reader of a here-document that starts it."""
    parent = node.parent
    if parent is not None and parent.type == "redirected_statement":
        node, parent = parent, parent.parent
    if parent is None or parent.type != "pipeline":
        return
    stage = node.prev_named_sibling
    for _ in range(MAX_STAGES_BEFORE):
        if stage is None:
            return
        yield stage
        stage = stage.prev_named_sibling
