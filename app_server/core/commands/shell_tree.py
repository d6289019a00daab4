"""Shell scripts as syntax trees.

The one place that knows the parser. Its grammar is that of bash; where another shell, or bash itself, reads a text
differently, the callers refuse to conclude anything from the tree.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


def parse(source: bytes) -> Node:
    """The root of the tree. A text that is no bash has a tree too: `has_error` tells."""
    return _parser().parse(source).root_node


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


@cache
def _parser() -> Parser:
    # Loading the grammar takes tens of milliseconds, and a server that runs no command never needs it.
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
