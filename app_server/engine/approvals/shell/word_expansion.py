"""Expands the words of a script as a shell would most likely expand them.

Quotes are removed, braces are expanded (`r{m,} {a..c}` → `rm r a b c`), and escapes of `$'…'`, `echo -e` and `printf`
are replaced. Values that the script gives to its variables and parameters are inserted, as far as the script shows
them. Parts that are known only when the script runs stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, product, zip_longest
from typing import TYPE_CHECKING

from app_server.engine.approvals.shell import syntax_trees

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BRACES = 20
MAX_WORDS = 1_000

_SEQUENCE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?\d+)?")

_QUOTED = str.maketrans("{},\ue003", "\ue000\ue001\ue002\ue000")
_UNQUOTED = str.maketrans("\ue000\ue001\ue002", "{},")
_IN_WORD = re.compile(r"(?<!\$)\{(?=[^\s{}(;&|<>])|(?<!\$)\{(?=\{)")
_MARK = "\ue003"


class TooManyWords(Exception):
    """A word expands to more words than the limit."""


def mark_braces(script: str) -> str:
    """Replace opening braces that belong to words by a letter. The parser reads the brace of `{rm,-rf}` as that of a
    group.
    """
    return _IN_WORD.sub(_MARK, script) if "{" in script else script


def unmark_braces(text: str) -> str:
    return text.replace(_MARK, "{")


def quote_braces(text: str) -> str:
    """Mark braces so that `expand_braces` takes the text literally."""
    return text.translate(_QUOTED)


def expand_braces(text: str) -> list[str]:
    """Expand braces. A sequence of numbers is represented by its ends. Raises TooManyWords."""
    text = unmark_braces(text)
    if "{" not in text:
        return [text.translate(_UNQUOTED)]
    if text.count("{") > MAX_BRACES:
        raise TooManyWords
    return [word.translate(_UNQUOTED) for word in _expanded(text)]


def _expanded(text: str) -> list[str]:
    start = text.find("{")
    while start >= 0:
        end = _end(text, start)
        alternatives = None if end is None else _alternatives(text[start + 1 : end])
        if end is not None and alternatives is not None:
            inner = [word for each in alternatives for word in _expanded(each)]
            words = list(islice(product(inner, _expanded(text[end + 1 :])), MAX_WORDS + 1))
            if len(words) > MAX_WORDS:
                raise TooManyWords
            return [text[:start] + first + rest for first, rest in words]
        start = text.find("{", start + 1)
    return [text]


def _end(text: str, start: int) -> int | None:
    """Return the position of the brace that closes the one at `start`. None if it is not closed."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
    return None


def _alternatives(inner: str) -> list[str] | None:
    if match := _SEQUENCE.fullmatch(inner):
        first, last = match[1], match[2]
        if first.isalpha() and last.isalpha():
            low, high = sorted((ord(first), ord(last)))
            return [chr(code) for code in range(low, high + 1)]
        return [first, last]
    parts, depth = [""], 0
    for character in inner:
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if len(parts) > 1 else None


MAX_ROUNDS = 100
"""Maximum number of times that a format is repeated for more arguments."""

_HEX = "([0-9a-fA-F]{1,%d})"
_DECODED_ESCAPE = re.compile(
    rf"\\(?:x\{{([0-9a-fA-F]+)\}}|x{_HEX % 2}|u{_HEX % 4}|U{_HEX % 8}|(0[0-7]{{1,3}}|[0-7]{{1,3}})|c(.)|(.))",
    re.DOTALL,
)
_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_LITERAL_LETTERS = frozenset("\\'\"?")
_DIRECTIVE = re.compile(r"%(%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")


def decode_escapes(text: str) -> str:
    return _DECODED_ESCAPE.sub(_decoded, text)


def _decoded(match: re.Match[str]) -> str:
    if digits := next(filter(None, match.groups()[:4]), None):
        code = int(digits, 16) if len(digits) <= 8 else 0
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "�"
    if match[5]:
        return chr(int(match[5], 8) % 256)
    if match[6]:
        return chr(ord(match[6].upper()) % 32)
    letter = match[7]
    return _LETTERS.get(letter, letter if letter in _LITERAL_LETTERS else match[0])


def printed(words: Sequence[str]) -> str | None:
    """Return the text that `echo` or `printf` with these arguments prints; None for other programs."""
    match words:
        case ["echo", *rest]:
            while rest and re.fullmatch("-[neE]+", rest[0]):
                rest = rest[1:]
            return decode_escapes(" ".join(rest))
        case ["printf", *rest]:
            if rest[:1] == ["--"]:
                rest = rest[1:]
            return _formatted(rest[0], rest[1:]) if rest else ""
        case _:
            return None


def _formatted(form: str, arguments: Sequence[str]) -> str:
    """Format as `printf` does, without widths and precisions."""
    form = decode_escapes(form)
    left = list(reversed(arguments))

    def value(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        argument = left.pop() if left else ""
        return decode_escapes(argument) if match[1].endswith("b") else argument

    parts = []
    for _ in range(MAX_ROUNDS):
        before = len(left)
        parts.append(_DIRECTIVE.sub(value, form))
        if not left or len(left) == before:
            break
    return "".join(parts)


_FIELD_BREAK = "\x1f"
"""Marker of the positions at which an unquoted expansion splits a word."""

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPE_IN_DOUBLE = re.compile(r"\\(.)", re.DOTALL)
_EXPANSION = re.compile(r"\$\{?(\w+|[@*])(?:\[[^\]]*\])?(?:(:?[-=+])(.*))?\}?", re.DOTALL)
_NOT_ARGUMENTS = ("variable_assignment", "herestring_redirect", "file_redirect")
_NAMING = frozenset({"which", "type"})
"""Names of programs that print the path of a program; the result has only the program's name."""


class WordExpander:
    def __init__(self, source: bytes, variables: Mapping[str, str]) -> None:
        self._source = source
        self._variables = {"IFS": " ", **variables}
        self._breaks = _field_breaks(self._variables["IFS"])

    def own_words(self, command: Node) -> list[str]:
        """Return the words of a command, without those that the parser puts behind a redirection. Raises
        TooManyWords.
        """
        texts: list[str] = []
        end = -1
        for child, following in zip_longest(command.children, command.children[1:]):
            if not child.is_named or child.type in _NOT_ARGUMENTS or _is_descriptor(child, following):
                continue
            text = self._text(child.children[0] if child.type == "command_name" else child)
            # Parts without a blank between them are one word, even if the parser sees two.
            texts[-1:] = [texts[-1] + text] if child.start_byte == end else [*texts[-1:], text]
            end = child.end_byte
        return [word for text in texts for word in _words_of(text)]

    def words(self, node: Node) -> list[str]:
        """Return the words of a node. Raises TooManyWords."""
        return _words_of(self._text(node))

    def _text(self, node: Node, *, quoted: bool = False) -> str:
        text = syntax_trees.text_of(node, self._source)
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
        """Return the value of `$x` or `${x:-default}`; the expansion itself if the value is not known."""
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
        """Return the output of a substitution of one simple command, if its words show it. Otherwise None."""
        inner = substitution.named_children
        if len(inner) != 1 or inner[0].type != "command":
            return None
        words = self.own_words(inner[0])
        return named_program(words) or printed(words)


@lru_cache(maxsize=16)
def _field_breaks(separators: str) -> re.Pattern[str]:
    """Return the pattern of field separators. It is cached, because there is an expander for each command of a script,
    and hardly any script sets `IFS`.
    """
    return re.compile(rf"[\s{re.escape(separators)}]+")


def _words_of(text: str) -> list[str]:
    words = [word for each in expand_braces(text) for word in each.split(_FIELD_BREAK) if word]
    return words or [""]


def _is_descriptor(node: Node, following: Node | None) -> bool:
    """Return whether it is the `0` in `bash 0<<< text`, which the parser reads as an argument."""
    return (
        node.type == "number"
        and following is not None
        and following.type == "herestring_redirect"
        and following.start_byte == node.end_byte
    )


def named_program(words: Sequence[str]) -> str | None:
    """Return `rm` for `which rm`, `type -P rm` and `command -v rm`. None for any other command."""
    match words:
        case [first, *_, program] if first in _NAMING:
            return program
        case ["command", "-v" | "-V", program]:
            return program
        case _:
            return None


MAX_APPENDED = 100
"""Maximum number of assignments with `+=`, each of which has a longer value than the one before."""

_KEY = re.compile(r"\[[^\]]*\]=")
_NAME = re.compile(r"\$\{?[!#]?(\w+|[@*])")


class ScriptVariables:
    """Each name with all its values: the value at a certain place is known only when the script runs."""

    def __init__(self, nodes: Sequence[Node], source: bytes, parameters: Sequence[str] = ()) -> None:
        """Read the assignments of a script. Raises TooManyWords."""
        self._source = source
        self._plain = WordExpander(source, {})
        self._functions = {
            syntax_trees.text_of(name, source)
            for node in nodes
            if node.type == "function_definition" and (name := node.child_by_field_name("name")) is not None
        }
        self._values: dict[str, list[str]] = {}
        self._appended = 0
        self.aliases: dict[str, str] = {}
        if parameters:
            self._add("0", parameters[0])
            self._add_parameters(parameters[1:])
        for node in nodes:
            match node.type:
                case "variable_assignment":
                    self._assignment(node)
                case "for_statement" | "select_statement":
                    self._loop(node)
                case "command":
                    self._command(node)
                case _:
                    pass

    def expanders(self, node: Node) -> Iterator[WordExpander]:
        """Yield an expander for each combination of the values of the variables that are used below `node`."""
        names = dict.fromkeys(match[1] for match in _NAME.finditer(syntax_trees.text_of(node, self._source)))
        open_names = [name for name in names if len(self._values.get(name, ())) > 1]
        last = {name: values[-1] for name, values in self._values.items()}
        choices = product(*(reversed(self._values[name]) for name in open_names))
        for chosen in choices:
            yield WordExpander(self._source, {**last, **dict(zip(open_names, chosen, strict=True))})

    def all_values(self) -> Iterator[tuple[str, str]]:
        return ((name, value) for name, values in self._values.items() for value in values)

    def _add(self, name: str, value: str) -> None:
        values = self._values.setdefault(name, [])
        if value not in values:
            values.append(value)

    def _assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or value is None:
            return
        named = syntax_trees.text_of(name, self._source).partition("[")[0]
        parts = value.named_children if value.type == "array" else [value]
        words = [word for part in parts for word in self._plain.words(part)]
        if value.type == "array":
            words = [_KEY.sub("", word) for word in words]
        text = " ".join(words)
        before = self._values.get(named, [""])[-1]
        if any(child.type == "+=" for child in node.children):
            self._appended += 1
            if self._appended > MAX_APPENDED:
                raise TooManyWords
            text = f"{before} {text}" if value.type == "array" else before + text
        self._add(named, text)

    def _loop(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            for value in node.children_by_field_name("value"):
                for word in self._plain.words(value):
                    self._add(syntax_trees.text_of(variable, self._source), word)

    def _command(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        called = "" if name is None else syntax_trees.text_of(name, self._source)
        if called == "set" or called in self._functions:
            words = self._plain.own_words(node)[1:]
            self._add_parameters(words[1:] if words[:1] == ["--"] else words)
        elif called == "alias":
            for word in self._plain.own_words(node)[1:]:
                alias, _, value = word.partition("=")
                self.aliases[alias] = value

    def _add_parameters(self, words: Sequence[str]) -> None:
        for name in "@*":
            self._add(name, " ".join(words))
        for number, word in enumerate(words[:9], 1):
            self._add(str(number), word)
