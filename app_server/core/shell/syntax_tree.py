"""Shell scripts as syntax trees.

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
    """The root of the tree; None after the time limit. Invalid bash has a tree too: see `has_error`."""
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
    """The node and all below it, in the order of the text."""
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
    from app_server.core.shell.bash_parser import bash_parser  # noqa: PLC0415

    return bash_parser()


_PARSER = Lazy(_load_parser)
