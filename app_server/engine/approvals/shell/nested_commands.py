"""Finds every command in a script: behind control flow, in substitutions, functions and redirections.

Words are expanded as a shell would most likely expand them. That finds everything that a script shows. A script that
hides its commands cannot be understood without running it.

A text that the parser does not parse is searched as a script if a shell runs it: substitutions in here-documents, in
subscripts of arrays (`test -v 'a[$(id)]'` runs `id`) and in other parts that the grammar does not cover. Continued
lines are joined before the script is parsed: the parser reads an `rm` that is broken by a backslash as two words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.engine.approvals.shell import syntax_trees, word_expansion
from app_server.engine.approvals.shell.quote import word_set

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_ROUNDS = 6
_CONTINUED = re.compile(rb"(?<!\\)((?:\\\\)*)\\\n")
_LITERAL = frozenset({"comment", "raw_string", "ansi_c_string"})


def parse_joined(source: bytes) -> tuple[bytes, Node] | None:
    """Return the script without continued lines, and its tree; None if the parser does not finish.

    Joining may turn text into or out of a comment or a string, so it is repeated until no line is left to join.
    """
    for _ in range(MAX_ROUNDS):
        root = syntax_trees.parse(source)
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
    """Yield the spans in which a backslash at the end of a line is kept."""
    for node in syntax_trees.descendants(root):
        if node.type in _LITERAL or (node.type == "heredoc_body" and is_quoted_heredoc(node, source)):
            yield node.start_byte, node.end_byte


def is_quoted_heredoc(body: Node, source: bytes) -> bool:
    """Return whether the shell expands nothing in a here-document, because its delimiter is quoted."""
    parent = body.parent
    starts = [] if parent is None else [child for child in parent.children if child.type == "heredoc_start"]
    return any(mark in syntax_trees.text_of(start, source) for start in starts for mark in "'\"\\")


MAX_SCRIPTS = 100
_START = re.compile(r"(?<!\\)(?:\\\\)*(\$\(|`)")
_SUBSCRIPT = re.compile(r"\[[^\]\n]{0,40}?(?=\$\(|`)")


def substitutions(text: str) -> list[str]:
    """Return the scripts of the first command substitutions in `text`."""
    found: list[str] = []
    at = 0
    while len(found) <= MAX_SCRIPTS and (match := _START.search(text, at)):
        start = match.end()
        end = _closing_parenthesis(text, start) if match[1] == "$(" else text.find("`", start)
        if end < 0:
            end = len(text)
        found.append(text[start:end])
        at = end + 1
    return found


def evaluated_subscripts(text: str) -> list[str]:
    """Return the scripts in possible subscripts of arrays, for all contexts in which the shell evaluates names as
    arithmetic.
    """
    match = _SUBSCRIPT.search(text)
    return [] if match is None else substitutions(text[match.end() :])


def _closing_parenthesis(text: str, start: int) -> int:
    depth = 1
    for match in re.finditer(r"[()]", text[start:]):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return start + match.start()
    return -1


INTERPRETERS = word_set("bash sh zsh dash ksh ash fish mksh rbash yash csh tcsh eval source .")
MAX_NODES = 20_000
MAX_READINGS = 3_000
"""Maximum number of readings. A command counts once for every combination of values that its variables may have."""

_ESCAPED_IN_BACKTICKS = re.compile(r"\\([\\$`])")
_IN_BACKTICKS = re.compile(r"(?<!\\)`([^`\\]*)`")
_RUN_VALUES = re.compile(
    r"PS[0-4]|.*(PAGER|EDITOR|VISUAL|COMMAND|ASKPASS|LESSOPEN|LESSCLOSE|BROWSER|RSH|_SSH)"
)
"""Names of variables whose values programs run, or at least whose substitutions they run."""
_STARTUP = frozenset({"BASH_ENV", "ENV"})


class FoundCommand(Struct, frozen=True):
    words: tuple[str, ...]
    fed_by: tuple[tuple[str, ...], ...] = ()
    """Commands before an interpreter in its pipeline, and commands whose output becomes its arguments. Empty for other
    programs.
    """
    fed_text: str = ""
    """Text that a here-document or a here-string writes to the standard input of an interpreter. Empty for other
    programs.
    """
    written: tuple[str, ...] = ()
    """Targets of redirections that write. Only entries for a whole script have them; these have no words."""


class FoundScript(Struct, frozen=True):
    commands: tuple[FoundCommand, ...]
    written: tuple[str, ...]
    """Targets of redirections that write."""
    is_clean: bool
    """Whether the parser found no syntax error."""
    scripts: tuple[str, ...] = ()
    """Texts that the shell parses as scripts of their own: substitutions that the parser of this module treats as
    text.
    """
    texts: tuple[str, ...] = ()
    """Values of variables, here-documents and here-strings, which may be run by commands that the script does not
    show.
    """
    evaluates: bool = False
    """Whether a value is run that no command shows, as by `BASH_ENV`."""


def commands_in(script: str, parameters: tuple[str, ...] = ()) -> FoundScript | None:
    """Return the commands of a script; None if it is too large to inspect. `parameters` are `$0`, `$1` and so on."""
    found = parse_joined(word_expansion.mark_braces(script).encode("utf-8", "replace"))
    nodes = [] if found is None else list(islice(syntax_trees.descendants(found[1]), MAX_NODES))
    if found is None or len(nodes) == MAX_NODES:
        return None
    source, root = found
    try:
        reader = _ScriptReader(source, nodes, parameters)
        commands = reader.commands()
        scripts = reader.scripts(commands or ())
        if commands is None or len(scripts) > MAX_SCRIPTS:
            return None
        return FoundScript(
            commands,
            reader.written(),
            not root.has_error and not reader.is_misread(),
            scripts,
            reader.texts(),
            reader.evaluates(),
        )
    except word_expansion.TooManyWords:
        return None


class _ScriptReader:
    def __init__(self, source: bytes, nodes: list[Node], parameters: tuple[str, ...]) -> None:
        self._source, self._nodes = source, nodes
        self._variables = word_expansion.ScriptVariables(nodes, source, parameters)
        self._values = tuple(self._variables.all_values())

    def commands(self) -> tuple[FoundCommand, ...] | None:
        """Return the commands; None if they can be read in too many ways."""
        found: list[FoundCommand] = []
        readings = 0
        for node in self._nodes:
            if node.type != "command":
                continue
            seen: set[tuple[str, ...]] = set()
            for expander in self._variables.expanders(node):
                readings += 1
                if readings > MAX_READINGS:
                    return None
                command = self._command(node, expander)
                if command.words not in seen:
                    seen.add(command.words)
                    found.append(command)
        return tuple(found)

    def written(self) -> tuple[str, ...]:
        targets = (
            child
            for node in self._nodes
            if node.type == "file_redirect" and any(">" in part.type for part in node.children)
            for child in node.children_by_field_name("destination")[:1]
        )
        return tuple(
            dict.fromkeys(
                "".join(expander.words(target))
                for target in targets
                for expander in islice(self._variables.expanders(target), MAX_READINGS)
            )
        )

    def scripts(self, commands: Sequence[FoundCommand]) -> tuple[str, ...]:
        found = [value for name, value in self._values if _RUN_VALUES.fullmatch(name)]
        aliases = self._variables.aliases
        found += [
            " ".join((aliases[name], *command.words[1:]))
            for command in commands
            for name in command.words[:1]
            if name in aliases
        ]
        for node in self._nodes:
            match node.type:
                case "word" | "string_content":
                    found += substitutions(syntax_trees.text_of(node, self._source))
                case "heredoc_body" if not is_quoted_heredoc(node, self._source):
                    found += substitutions(syntax_trees.text_of(node, self._source))
                case "raw_string":
                    found += evaluated_subscripts(syntax_trees.text_of(node, self._source))
                case "command_substitution" if self._source[node.start_byte] == ord("`"):
                    text = syntax_trees.text_of(node, self._source)[1:-1]
                    if (unescaped := _ESCAPED_IN_BACKTICKS.sub(r"\1", text)) != text:
                        found.append(unescaped)
            if len(found) > MAX_SCRIPTS:
                break
        if self._source.count(b"`") >= 4:
            # The parser reads two substitutions in a row as one inside the other.
            found.append(_IN_BACKTICKS.sub(r"$(\1)", self._source.decode("utf-8", "replace")))
        return tuple(map(word_expansion.unmark_braces, dict.fromkeys(found)))

    def is_misread(self) -> bool:
        """Return whether the parser read more than a word as one: a here-document whose text begins with a
        backslash.
        """
        words = (node for node in self._nodes if node.type == "word")
        return any(b"\n" in self._source[node.start_byte : node.end_byte] for node in words)

    def texts(self) -> tuple[str, ...]:
        bodies = [
            syntax_trees.text_of(node, self._source) for node in self._nodes if node.type == "heredoc_body"
        ]
        # The parser reads a here-string behind a compound command as a file.
        strings = [
            self._last_word(node)
            for node in self._nodes
            if node.type in ("herestring_redirect", "file_redirect")
        ]
        texts = (*(value for _, value in self._values), *bodies, *strings)
        return tuple(map(word_expansion.unmark_braces, dict.fromkeys(texts)))

    def evaluates(self) -> bool:
        prompts = (node for node in self._nodes if node.type == "expansion")
        return any(name in _STARTUP for name, _ in self._values) or any(
            syntax_trees.text_of(node, self._source).endswith("@P}") for node in prompts
        )

    def _command(self, node: Node, expander: word_expansion.WordExpander) -> FoundCommand:
        words = self._argv(node, expander)
        if not any(word.rpartition("/")[2] in INTERPRETERS for word in words):
            return FoundCommand(words)
        return FoundCommand(words, tuple(self._feeders(node, expander)), self._fed_text(node))

    def _argv(self, node: Node, expander: word_expansion.WordExpander) -> tuple[str, ...]:
        words = expander.own_words(node)
        for redirection in syntax_trees.redirections(node):
            for child in syntax_trees.arguments_behind(redirection):
                words += expander.words(child)
        return tuple(words)

    def _feeders(self, node: Node, expander: word_expansion.WordExpander) -> Iterator[tuple[str, ...]]:
        substituted = chain.from_iterable(
            map(syntax_trees.substitutions_in, (node, *syntax_trees.redirections(node)))
        )
        for source in (*substituted, *syntax_trees.stages_before(node)):
            for found in syntax_trees.descendants(source):
                if found.type == "command":
                    yield self._argv(found, expander)

    def _last_word(self, redirection: Node) -> str:
        expander = next(self._variables.expanders(redirection))
        return " ".join(expander.words(redirection.children[-1]))

    def _fed_text(self, node: Node) -> str:
        here_strings = [
            child
            for holder in (node, *syntax_trees.redirections(node))
            for child in (holder, *holder.children)
            if child.type == "herestring_redirect"
        ]
        parts = map(self._last_word, here_strings)
        bodies = [body for redirection in syntax_trees.redirections(node) for body in redirection.children]
        parent = node.parent
        if parent is not None and parent.type == "redirected_statement":
            parent = parent.parent
        # If the reader of a here-document begins a pipeline, the parser puts the rest of the pipeline inside the
        # here-document.
        if parent is not None and parent.parent is not None and parent.parent.type == "heredoc_redirect":
            bodies += parent.parent.children
        texts = (syntax_trees.text_of(body, self._source) for body in bodies if body.type == "heredoc_body")
        return word_expansion.unmark_braces("\n".join((*parts, *texts)))
