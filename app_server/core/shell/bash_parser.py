"""The parser of bash. Imports tree-sitter and its grammar: see `syntax_tree`."""

from __future__ import annotations

import tree_sitter
import tree_sitter_bash


def bash_parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
