"""Finds every command in a script: behind control flow, in substitutions, functions and redirections.

Words are expanded as a shell would most likely expand them. That finds what a script shows. A script that hides what
it does cannot be understood without running it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING

from app_server.core.shell.quote import word_set
from app_server.core.shell.syntax_tree import parse, text_of
from protocol.records import dataclass

if TYPE_CHECKING:
    from tree_sitter import Node

_FIELD_BREAK = "\x1f"
"""Marks where an unquoted expansion splits a word."""

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
INTERPRETERS = word_set("bash sh zsh dash ksh ash fish mksh rbash eval source .")
MAX_NODES = 20_000
MAX_STAGES_BEFORE = 8

_SUBSTITUTIONS = ("command_substitution", "process_substitution")
_ENDING_IN_COMMAND = ("pipeline", "list", "negated_command")
"""What the parser takes for the body of a redirection of its last command."""


@dataclass(frozen=True, slots=True)
class FoundCommand:
    words: tuple[str, ...]
    fed_by: tuple[tuple[str, ...], ...] = ()
    """For an interpreter: the commands before it in its pipeline, and those whose output becomes its arguments."""
    fed_text: str = ""
    """For an interpreter: what a here-document or a here-string writes to its standard input."""


@dataclass(frozen=True, slots=True)
class FoundScript:
    commands: tuple[FoundCommand, ...]
    written: tuple[str, ...]
    """The targets of redirections that write."""
    is_clean: bool
    """Whether the parser found no syntax error."""


def commands_in(script: str) -> FoundScript | None:
    """None where the script is too large to inspect."""
    source = script.encode("utf-8", "replace")
    root = parse(source)
    nodes = [] if root is None else list(islice(_descendants(root), MAX_NODES))
    if root is None or len(nodes) == MAX_NODES:
        return None
    reader = _Words(source, _literal_assignments(nodes, source))
    commands = tuple(reader.command(node) for node in nodes if node.type == "command")
    targets = tuple(
        "".join(reader.words(child))
        for node in nodes
        if node.type == "file_redirect" and any(">" in part.type for part in node.children)
        for child in node.children_by_field_name("destination")[:1]
    )
    return FoundScript(commands, targets, not root.has_error)


def _descendants(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))


def _literal_assignments(nodes: list[Node], source: bytes) -> dict[str, str]:
    plain = _Words(source, {})
    values = {}
    for node in nodes:
        if node.type == "variable_assignment":
            name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
            if name is not None and value is not None:
                values[text_of(name, source)] = " ".join(plain.words(value))
    return values


class _Words:
    """Expands words: removes the quotes and inserts the script's own variables."""

    def __init__(self, source: bytes, variables: Mapping[str, str]) -> None:
        self._source = source
        self._variables = {"IFS": " ", **variables}

    def command(self, node: Node) -> FoundCommand:
        words = tuple(self._argv(node))
        if not any(word.rpartition("/")[2] in INTERPRETERS for word in words):
            return FoundCommand(words)
        return FoundCommand(words, tuple(self._feeders(node)), self._fed_text(node))

    def _argv(self, node: Node) -> Iterator[str]:
        for child in node.children:
            if child.type == "command_name":
                yield from self.words(child.children[0])
            elif child.is_named and child.type not in (
                "variable_assignment",
                "herestring_redirect",
                "file_redirect",
            ):
                yield from self.words(child)
        for redirection in _redirections(node):
            for child in _arguments_behind(redirection):
                yield from self.words(child)

    def words(self, node: Node) -> list[str]:
        text = self._text(node)
        if match := _BRACES.fullmatch(text):
            return [word for word in match[1].split(",") if word]
        words = [word for word in text.split(_FIELD_BREAK) if word]
        return words or [""]

    def _text(self, node: Node, *, quoted: bool = False) -> str:
        text = text_of(node, self._source)
        match node.type:
            case "word" | "string_content":
                return _ESCAPE.sub(lambda match: match[1].strip("\n"), text)
            case "raw_string":
                return text[1:-1]
            case "ansi_c_string":
                return text[2:-1].encode("latin-1", "replace").decode("unicode_escape", "replace")
            case "string":
                return "".join(self._text(child, quoted=True) for child in node.children if child.is_named)
            case "translated_string" | "concatenation":
                return "".join(self._text(child) for child in node.children if child.type != "$")
            case "simple_expansion" | "expansion":
                value = self._variables.get(text.strip("${}"), text)
                return value if quoted else re.sub(r"\s+", _FIELD_BREAK, value)
            case _:
                return text

    def _feeders(self, node: Node) -> Iterator[tuple[str, ...]]:
        substitutions = chain.from_iterable(map(_substitutions_in, (node, *_redirections(node))))
        for source in (*substitutions, *_stages_before(node)):
            for found in _descendants(source):
                if found.type == "command":
                    yield tuple(self._argv(found))

    def _fed_text(self, node: Node) -> str:
        here_strings = [child for child in node.children if child.type == "herestring_redirect"]
        parts = ["".join(self.words(child.children[-1])) for child in here_strings]
        bodies = [body for redirection in _redirections(node) for body in redirection.children]
        parent = node.parent
        if parent is not None and parent.type == "redirected_statement":
            parent = parent.parent
        # The parser places the rest of a pipeline that begins with the reader of a here-document inside of that.
        if parent is not None and parent.parent is not None and parent.parent.type == "heredoc_redirect":
            bodies += parent.parent.children
        return "\n".join(
            (*parts, *(text_of(body, self._source) for body in bodies if body.type == "heredoc_body"))
        )


def _redirections(command: Node) -> list[Node]:
    node, parent = command, command.parent
    while parent is not None and parent.type in _ENDING_IN_COMMAND and node == parent.named_children[-1]:
        node, parent = parent, parent.parent
    if parent is None or parent.type != "redirected_statement":
        return []
    return parent.children_by_field_name("redirect")


def _arguments_behind(redirection: Node) -> Iterator[Node]:
    """`-rf d` in `rm 2>/dev/null -rf d`, which the parser takes for more targets of the redirection."""
    if redirection.type == "file_redirect":
        yield from redirection.children_by_field_name("destination")[1:]
    elif redirection.type == "heredoc_redirect":
        yield from redirection.children_by_field_name("argument")
        for inner in redirection.children_by_field_name("redirect"):
            yield from _arguments_behind(inner)


def _substitutions_in(node: Node) -> Iterator[Node]:
    return (child for child in _descendants(node) if child.type in _SUBSTITUTIONS)


def _stages_before(node: Node) -> Iterator[Node]:
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
