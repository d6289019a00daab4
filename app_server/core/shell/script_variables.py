"""The values that a script gives to its variables and parameters, as far as it shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from app_server.core.shell.syntax_tree import text_of
from app_server.core.shell.word_expansion import TooManyWords, WordExpander

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_APPENDED = 100
"""Assignments with `+=`, each of which has a longer value than the one before."""

_KEY = re.compile(r"\[[^\]]*\]=")
_NAME = re.compile(r"\$\{?[!#]?(\w+|[@*])")


class ScriptVariables:
    """Each name with all its values: which one holds where is known only when the script runs."""

    def __init__(self, nodes: Sequence[Node], source: bytes, parameters: Sequence[str] = ()) -> None:
        """Raises TooManyWords."""
        self._source = source
        self._plain = WordExpander(source, {})
        self._functions = {
            text_of(name, source)
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
        """Make an expander for each combination of the values of the variables that are used below `node`."""
        names = dict.fromkeys(match[1] for match in _NAME.finditer(text_of(node, self._source)))
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
        named = text_of(name, self._source).partition("[")[0]
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
                    self._add(text_of(variable, self._source), word)

    def _command(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        called = "" if name is None else text_of(name, self._source)
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
