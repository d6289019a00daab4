"""Shell scripts of plain commands as the argument vectors that a shell would execute.

`split_script` is for decisions: it returns None if bash, zsh and sh might disagree with it. `split_for_display` is for
display: it understands more scripts and guarantees nothing. `as_typed` returns the lines that a program reads when text
is typed into its terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app_server.engine.approvals.shell import syntax_trees

if TYPE_CHECKING:
    from tree_sitter import Node

Commands = tuple[tuple[str, ...], ...]

MAX_CHARACTERS = 10_000
MAX_COMMANDS = 100
"""Maximum number of commands. A script with more commands is opaque. No limit here leads to a weaker rule."""

MAX_DISPLAY_CHARACTERS = 100_000
OPERATORS = frozenset({"&&", "||", ";", "|"})

_JOINING = ("program", "list", "pipeline")
_SHELLS = frozenset(folder + name for name in ("bash", "zsh", "sh") for folder in ("", "/bin/", "/usr/bin/"))
_PLAIN_WORD = r"[\w@%+:,./-][\w@%+=:,./-]*"
"""Pattern of a word without quote, glob, brace, tilde, caret, escape, expansion or comment. `=` is not allowed as the
first character, where zsh expands it.
"""


def script_of(argv: Sequence[str]) -> str | None:
    """Return the script if `argv` is a known shell that runs exactly one and does nothing else."""
    if len(argv) == 3 and argv[0] in _SHELLS and argv[1] in ("-c", "-lc"):
        return argv[2]
    return None


def split_script(script: str) -> Commands | None:
    """Return the commands of a script that has only plain commands, joined by `&&`, `||`, `;` or `|`. None for any
    other script.
    """
    if len(script) > MAX_CHARACTERS:
        return None
    script = script.strip(" \t\n")
    # Shells, parsers and terminals disagree about control characters, newlines and unusual blanks.
    if not script.replace("\t", " ").isprintable():
        return None
    source = script.encode()
    root = syntax_trees.parse(source)
    if root is None or root.type != "program" or root.has_error:
        return None
    reader = _PlainReader(source)
    if not reader.accepts(root) or reader.ends_open:
        return None
    return tuple(reader.commands) if 0 < len(reader.commands) <= MAX_COMMANDS else None


class _PlainReader:
    """Walks a tree from left to right and accounts for every byte: bytes that no accepted node covers must be blank."""

    def __init__(self, source: bytes) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.ends_open = False
        self._source = source
        self._at = 0

    def accepts(self, root: Node) -> bool:
        pending = [root]  # not recursive, because every `&&` is a level of its own
        while pending:
            node = pending.pop()
            if node.type == "command":
                if not self._command(node):
                    return False
            elif node.type in _JOINING:
                pending.extend(reversed(node.children))
            elif not node.is_named and node.type in OPERATORS and self._covers(node):
                self.ends_open = True
            else:
                return False
        return True

    def _command(self, node: Node) -> bool:
        words = []
        for child in node.children:
            inner = child.children[0] if child.type == "command_name" and child.child_count == 1 else child
            word = self._word(inner)
            if word is None:
                return False
            words.append(word)
        self.commands.append(tuple(words))
        self.ends_open = False
        return True

    def _word(self, node: Node) -> str | None:
        if node.type != "concatenation":
            return self._part(node) if self._blank_before(node) else None
        parts: list[str] = []
        for child in node.children:
            if parts and child.start_byte != self._at:
                return None
            if not (self._blank_before(child) and (part := self._part(child)) is not None):
                return None
            parts.append(part)
        return "".join(parts)

    def _part(self, node: Node) -> str | None:
        """Return the value of a word or a part of one; None if the shell would do more than remove quotes."""
        text = syntax_trees.text_of(node, self._source)
        self._at = node.end_byte
        match node.type:
            case "word" | "number":
                return text if re.fullmatch(_PLAIN_WORD, text) or text == "!" else None
            case "raw_string":
                return text[1:-1]
            case "string":
                inner = text[1:-1]
                return None if any(c in inner for c in '\\$`"') else inner
            case _:
                return None

    def _covers(self, node: Node) -> bool:
        blank = self._blank_before(node)
        self._at = node.end_byte
        return blank

    def _blank_before(self, node: Node) -> bool:
        return not self._source[self._at : node.start_byte].strip(b" \t")


def split_for_display(script: str) -> Commands | None:
    """Return the commands as written: without quotes, with escapes and globs. None if the script is not understood."""
    if len(script) > MAX_DISPLAY_CHARACTERS:
        return None
    source = script.encode("utf-8", "replace")
    root = syntax_trees.parse(source)
    if root is None or root.has_error:
        return None
    commands: list[tuple[str, ...]] = []
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "command":
            words = [_shown_word(child, source) for child in node.children]
            if None in words:
                return None
            commands.append(tuple(word for word in words if word is not None))
        elif node.type in _JOINING:
            pending.extend(reversed(node.children))
        elif node.is_named or (node.type not in OPERATORS and node.type.strip()):
            return None
    return tuple(commands)


def _shown_word(node: Node, source: bytes) -> str | None:
    if node.type == "command_name":
        node = node.children[0]
        return syntax_trees.text_of(node, source) if node.type == "word" else None
    match node.type:
        case "word" | "number":
            return syntax_trees.text_of(node, source)
        case "raw_string":
            return syntax_trees.text_of(node, source)[1:-1]
        case "string" if [child.type for child in node.children] == ['"', "string_content", '"']:
            return syntax_trees.text_of(node, source)[1:-1]
        case _:
            return None


_ERASE = frozenset("\x08\x7f")
_ERASE_LINE = "\x15"
_ERASE_WORD = "\x17"


def as_typed(text: str) -> str:
    """Return the lines that a program reads. Characters that move a cursor, complete or recall are left out."""
    lines: list[str] = []
    line = ""
    for character in text:
        if character in "\r\n":
            lines.append(line)
            line = ""
        elif character in _ERASE:
            line = line[:-1]
        elif character == _ERASE_LINE:
            line = ""
        elif character == _ERASE_WORD:
            line = line.rstrip()
            line = line[: line.rfind(" ") + 1]
        elif character.isprintable() or character == "\t":
            line += character
    return "\n".join((*lines, line))
