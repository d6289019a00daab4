"""Syntax trees of scripts, by the parser of bash. If another shell, or bash itself, parses a script differently, the
callers conclude nothing from the tree.

This module alone uses the parser. It is imported as a module: loading the grammar takes tens of milliseconds, and a
server that runs no command never needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

_PARSER: Final = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))

MAX_STAGES_BEFORE = 8
MAX_SECONDS = 0.03
"""Time limit of parsing, in seconds of processor time. Scripts of models take a hundredth of it; adversarial input
takes minutes.
"""


def parse(
    source: bytes, clock: Callable[[], float] = time.thread_time, seconds: float = MAX_SECONDS
) -> Node | None:
    """Return the root of the tree; None after the time limit. Invalid bash has a tree too: see `has_error`."""
    deadline = clock() + seconds
    try:
        tree = _PARSER.parse(
            lambda offset, point: source[offset:],
            progress_callback=lambda offset, has_error: clock() > deadline,
        )
    except ValueError:
        _PARSER.reset()
        return None
    return tree.root_node


def descendants(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it, in the order of the text."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))


def text_of(node: Node, source: bytes) -> str:
    # `node.text` is not used: it reads the source again through the callback of `parse`, and uses the result after it
    # was freed. That crashes if large blocks are returned to the system (`process_memory`).
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


_SUBSTITUTIONS = ("command_substitution", "process_substitution")
_ENDING_IN_COMMAND = ("pipeline", "list", "negated_command")
"""Node types that the parser makes the body of a redirection, although the redirection belongs to their last
command.
"""


def redirections(command: Node) -> list[Node]:
    node, parent = command, command.parent
    while parent is not None and parent.type in _ENDING_IN_COMMAND and node == parent.named_children[-1]:
        node, parent = parent, parent.parent
    if parent is None or parent.type != "redirected_statement":
        return []
    return parent.children_by_field_name("redirect")


def arguments_behind(redirection: Node) -> Iterator[Node]:
    """Yield the nodes of `-rf d` in `rm 2>/dev/null -rf d`, which the parser reads as more targets of the
    redirection.
    """
    if redirection.type == "file_redirect":
        yield from redirection.children_by_field_name("destination")[1:]
    elif redirection.type == "heredoc_redirect":
        yield from redirection.children_by_field_name("argument")
        for inner in redirection.children_by_field_name("redirect"):
            yield from arguments_behind(inner)


def substitutions_in(node: Node) -> Iterator[Node]:
    return (child for child in descendants(node) if child.type in _SUBSTITUTIONS)


def stages_before(node: Node) -> Iterator[Node]:
    """Yield the nearest stages before `node` in its pipeline, including the reader of a here-document that starts
    it.
    """
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
