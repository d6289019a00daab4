"""Shell scripts as syntax trees, and what belongs to a command in one: redirections, substitutions, earlier stages.

Only this module knows the parser. Its grammar is that of bash; where another shell, or bash itself, parses a script
differently, the callers conclude nothing from the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app_server.core.lazy import Lazy

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_SECONDS = 0.03
"""Processor time. What models write takes a hundredth of it; adversarial input takes minutes."""


def parse(
    source: bytes, clock: Callable[[], float] = time.thread_time, seconds: float = MAX_SECONDS
) -> Node | None:
    """Return the root of the tree; None after the time limit. Invalid bash has a tree too: see `has_error`."""
    parser = _PARSER.get()
    deadline = clock() + seconds
    try:
        tree = parser.parse(
            lambda offset, point: source[offset:],
            progress_callback=lambda offset, has_error: clock() > deadline,
        )
    except ValueError:
        parser.reset()
        return None
    return tree.root_node


def descendants(node: Node) -> Iterator[Node]:
    """Return the node and all below it, in the order of the text."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))


def text_of(node: Node, source: bytes) -> str:
    # Not `node.text`: it reads the source again through the callback of `parse`, and uses what that returned after it
    # was freed. That crashes where large blocks go back to the system (`process_memory`).
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _load_parser() -> Parser:
    # Loading the grammar takes tens of milliseconds, and a server that runs no command never needs it.
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


_PARSER = Lazy(_load_parser)


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
    """Find `-rf d` in `rm 2>/dev/null -rf d`, which the parser takes for more targets of the redirection."""
    if redirection.type == "file_redirect":
        yield from redirection.children_by_field_name("destination")[1:]
    elif redirection.type == "heredoc_redirect":
        yield from redirection.children_by_field_name("argument")
        for inner in redirection.children_by_field_name("redirect"):
            yield from arguments_behind(inner)


def substitutions_in(node: Node) -> Iterator[Node]:
    return (child for child in descendants(node) if child.type in _SUBSTITUTIONS)


def stages_before(node: Node) -> Iterator[Node]:
    """Return the nearest stages before `node` in its pipeline, with the reader of a here-document that starts it."""
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
