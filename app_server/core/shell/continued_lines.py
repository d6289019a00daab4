"""Joins the lines that a backslash at their end continues, as a shell does before it reads words.

The parser joins them only between words: it takes `r\\<newline>m` for two words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app_server.core.shell.syntax_tree import descendants, parse, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_ROUNDS = 6
_CONTINUED = re.compile(rb"(?<!\\)((?:\\\\)*)\\\n")
_LITERAL = frozenset({"comment", "raw_string", "ansi_c_string"})


def parse_joined(source: bytes) -> tuple[bytes, Node] | None:
    """The script without continued lines, and its tree; None where the parser does not finish.

    Joining may change what is a comment or a string, so it goes on until nothing is left to join.
    """
    for _ in range(MAX_ROUNDS):
        root = parse(source)
        if root is None:
            return None
        joined = source if b"\\\n" not in source else _joined(source, root)
        if joined == source:
            return source, root
        source = joined
    return None


def _joined(source: bytes, root: Node) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end in _literal_spans(source, root):
        if start >= at:
            parts += (_CONTINUED.sub(rb"\1", source[at:start]), source[start:end])
            at = end
    return b"".join((*parts, _CONTINUED.sub(rb"\1", source[at:])))


def _literal_spans(source: bytes, root: Node) -> Iterator[tuple[int, int]]:
    """Where a backslash at the end of a line stays."""
    for node in descendants(root):
        if node.type in _LITERAL or (node.type == "heredoc_body" and is_quoted_heredoc(node, source)):
            yield node.start_byte, node.end_byte


def is_quoted_heredoc(body: Node, source: bytes) -> bool:
    """Whether the shell expands nothing in a here-document, because its delimiter is quoted."""
    parent = body.parent
    starts = [] if parent is None else [child for child in parent.children if child.type == "heredoc_start"]
    return any(mark in text_of(start, source) for start in starts for mark in "'\"\\")
