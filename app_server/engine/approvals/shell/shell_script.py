"""Shell scripts as syntax trees, and scripts of plain commands as the argument vectors that a shell would execute.

This module alone uses the parser. Its grammar is that of bash. If another shell, or bash itself, parses a script
differently, the callers conclude nothing from the tree.

`split_script` is for decisions: it returns None if bash, zsh and sh might disagree with it. `split_for_display` is for
display: it understands more scripts and guarantees nothing. `as_typed` returns the lines that a program reads when text
is typed into its terminal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from app_server.engine.support.lazy import Lazy

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_SECONDS = 0.03
"""Time limit of parsing, in seconds of processor time. Scripts of models take a hundredth of it; adversarial input
takes minutes.
"""


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


def _load_parser() -> Parser:
    # Loading the grammar takes tens of milliseconds, and a server that runs no command never needs it.
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


_PARSER = Lazy(_load_parser)


MAX_STAGES_BEFORE = 8

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
    root = parse(source)
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
        text = text_of(node, self._source)
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
    root = parse(source)
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
        return text_of(node, source) if node.type == "word" else None
    match node.type:
        case "word" | "number":
            return text_of(node, source)
        case "raw_string":
            return text_of(node, source)[1:-1]
        case "string" if [child.type for child in node.children] == ['"', "string_content", '"']:
            return text_of(node, source)[1:-1]
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
