"""Expands the words of a script as a shell would most likely expand them.

Quotes are removed, braces are expanded, and the script's own variables are inserted. What is known only when the
script runs stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from app_server.core.shell.braces import expand_braces, quote_braces, unmark_braces
from app_server.core.shell.escapes import decode_escapes, printed
from app_server.core.shell.syntax_tree import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_FIELD_BREAK = "\x1f"
"""Marks where an unquoted expansion splits a word."""

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPE_IN_DOUBLE = re.compile(r"\\(.)", re.DOTALL)
_EXPANSION = re.compile(r"\$\{?(\w+|[@*])(?:\[[^\]]*\])?(?:(:?[-=+])(.*))?\}?", re.DOTALL)
_NOT_ARGUMENTS = ("variable_assignment", "herestring_redirect", "file_redirect")
_NAMING = frozenset({"which", "type"})
"""Programs that print where a program is. Its name is enough."""


class WordExpander:
    def __init__(self, source: bytes, variables: Mapping[str, str]) -> None:
        self._source = source
        self._variables = {"IFS": " ", **variables}
        self._breaks = _field_breaks(self._variables["IFS"])

    def own_words(self, command: Node) -> list[str]:
        """The words of a command, without those that the parser places behind a redirection. Raises TooManyWords."""
        texts: list[str] = []
        end = -1
        for child, following in zip_longest(command.children, command.children[1:]):
            if not child.is_named or child.type in _NOT_ARGUMENTS or _is_descriptor(child, following):
                continue
            text = self._text(child.children[0] if child.type == "command_name" else child)
            # What no blank separates is one word, also where the parser sees two.
            texts[-1:] = [texts[-1] + text] if child.start_byte == end else [*texts[-1:], text]
            end = child.end_byte
        return [word for text in texts for word in _words_of(text)]

    def words(self, node: Node) -> list[str]:
        """Raises TooManyWords."""
        return _words_of(self._text(node))

    def _text(self, node: Node, *, quoted: bool = False) -> str:
        text = text_of(node, self._source)
        match node.type:
            case "word":
                return _ESCAPE.sub(lambda match: quote_braces(match[1].strip("\n")), text)
            case "string_content":
                return quote_braces(_ESCAPE_IN_DOUBLE.sub(r"\1", text))
            case "raw_string":
                return quote_braces(text[1:-1])
            case "ansi_c_string":
                return quote_braces(decode_escapes(unmark_braces(text[2:-1])).partition("\0")[0])
            case "string":
                return "".join(self._text(child, quoted=True) for child in node.children if child.is_named)
            case "translated_string" | "concatenation":
                return "".join(self._text(child) for child in node.children if child.type != "$")
            case "simple_expansion" | "expansion":
                return self._split(self._value(text), quoted=quoted and "@" not in text)
            case "command_substitution" if (output := self._output(node)) is not None:
                return self._split(output, quoted=quoted)
            case "command_substitution" | "process_substitution" | "arithmetic_expansion":
                return quote_braces(text)
            case _:
                return text

    def _split(self, value: str, *, quoted: bool) -> str:
        return value if quoted else self._breaks.sub(_FIELD_BREAK, value)

    def _value(self, text: str) -> str:
        """Of an expansion such as `$x` or `${x:-default}`; the expansion itself where that is not known."""
        match = _EXPANSION.fullmatch(text)
        if match is None:
            return quote_braces(text)
        known = self._variables.get(match[1])
        default = (match[3] or "").rstrip("}").replace('"', "").replace("'", "")
        if match[2] is None or match[2].endswith(("-", "=")):
            value = known or (default if match[2] else known)
        else:
            value = default
        return quote_braces(text) if value is None else value

    def _output(self, substitution: Node) -> str | None:
        """What a substitution of one simple command prints, if its words show it."""
        inner = substitution.named_children
        if len(inner) != 1 or inner[0].type != "command":
            return None
        words = self.own_words(inner[0])
        return named_program(words) or printed(words)


@lru_cache(maxsize=16)
def _field_breaks(separators: str) -> re.Pattern[str]:
    """Cached: there is an expander for each command of a script, and hardly any sets `IFS`."""
    return re.compile(rf"[\s{re.escape(separators)}]+")


def _words_of(text: str) -> list[str]:
    words = [word for each in expand_braces(text) for word in each.split(_FIELD_BREAK) if word]
    return words or [""]


def _is_descriptor(node: Node, following: Node | None) -> bool:
    """`0` in `bash 0<<< text`, which the parser takes for an argument."""
    return (
        node.type == "number"
        and following is not None
        and following.type == "herestring_redirect"
        and following.start_byte == node.end_byte
    )


def named_program(words: Sequence[str]) -> str | None:
    """`rm` of `which rm`, `type -P rm` and `command -v rm`."""
    match words:
        case [first, *_, program] if first in _NAMING:
            return program
        case ["command", "-v" | "-V", program]:
            return program
        case _:
            return None
