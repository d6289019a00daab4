"""Rules about commands, and their text: calls of `prefix_rule`, in the syntax that Python and Starlark share. Pure.

A file with anything else in it is damaged. Its allowing rules are not in effect then, because the unreadable part may
have been meant to limit them. Rules that ask or forbid are in effect if they can be read.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import pairwise

from msgspec import Struct


class RuleDecision(IntEnum):
    """Decision of a rule, ordered from the mildest to the strictest."""

    ALLOW = 0
    PROMPT = 1
    FORBIDDEN = 2


class PrefixRule(Struct, frozen=True):
    """A rule for commands that begin with certain words."""

    pattern: tuple[tuple[str, ...], ...]
    """Words that match, for each position; never empty."""
    decision: RuleDecision = RuleDecision.ALLOW
    justification: str | None = None
    """Reason of the user, which the model receives. None if there is none."""

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether a command with these words begins with the pattern."""
        return len(words) >= len(self.pattern) and all(
            word in fitting for word, fitting in zip(words, self.pattern, strict=False)
        )


DECISIONS = {decision.name.lower(): decision for decision in RuleDecision}
ARGUMENTS = frozenset({"pattern", "decision", "justification", "match", "not_match"})
OTHER_CALLS = frozenset({"network_rule", "host_executable"})
"""Names of calls for other kinds of rules, which belong to features that this server lacks."""

MOST_RULES = 4_096
_START = re.compile(r"^prefix_rule\s*\(", re.MULTILINE)


class RulesText(Struct, frozen=True):
    """Content of a file of rules."""

    rules: tuple[PrefixRule, ...]
    damage: str | None = None
    """First statement that could not be read, and where: `line 3: …`. None if the file is not damaged."""


class _Damage(Exception):
    """A statement that cannot be read."""


def parse_rules(text: str) -> RulesText:
    try:
        rules = _parse(text)
    except _Damage as damage:
        return RulesText(tuple(rule for rule in _readable(text) if rule.decision), str(damage))
    return RulesText(tuple(rules))


def rule_for(words: Sequence[str]) -> PrefixRule:
    """Return the rule that allows commands that begin with these words."""
    return PrefixRule(tuple((word,) for word in words))


def rule_line(words: Sequence[str]) -> str:
    """Return the statement that allows commands that begin with these words."""
    listed = ", ".join(json.dumps(word, ensure_ascii=False) for word in words)
    return f'prefix_rule(pattern=[{listed}], decision="allow")\n'


def _readable(text: str) -> list[PrefixRule]:
    """Return the rules of a damaged file that can be read one by one."""
    starts = [found.start() for found in _START.finditer(text)][:MOST_RULES]
    rules: list[PrefixRule] = []
    for start, end in pairwise([*starts, len(text)]):
        try:
            rules += _parse(_without_rest(text[start:end]))
        except _Damage:
            continue
    return rules


def _without_rest(statement: str) -> str:
    """Cut the text after the last line that may end a call."""
    end = statement.rfind(")")
    return statement[: end + 1]


def _parse(text: str) -> list[PrefixRule]:
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise _Damage(f"line {error.lineno or 1}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise _Damage("line 1: this is no text that can be parsed") from None
    if len(module.body) > MOST_RULES:
        raise _Damage(f"line {module.body[MOST_RULES].lineno}: there are more than {MOST_RULES} rules")
    rules = []
    for statement in module.body:
        try:
            rule = _statement(statement)
        except (ValueError, RecursionError) as error:
            raise _Damage(f"line {statement.lineno}: {error}") from None
        if rule is not None:
            rules.append(rule)
    return rules


def _statement(statement: ast.stmt) -> PrefixRule | None:
    """Return the rule of a statement; None for a rule of another kind. Raises ValueError."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="prefix_rule"), args=[], keywords=keywords)):
            return _rule({str(each.arg): ast.literal_eval(each.value) for each in keywords})
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in OTHER_CALLS:
            return None
        case _:
            raise ValueError("expected a call of prefix_rule with named arguments")


def _rule(arguments: Mapping[str, object]) -> PrefixRule:
    if unknown := sorted(arguments.keys() - ARGUMENTS):
        raise ValueError(f"prefix_rule has no argument {unknown[0][:100]}")
    decision = arguments.get("decision", "allow")
    if not isinstance(decision, str) or decision not in DECISIONS:
        raise ValueError("expected decision to be allow, prompt or forbidden")
    justification = arguments.get("justification")
    if not (justification is None or isinstance(justification, str)):
        raise ValueError("expected justification to be text")
    rule = PrefixRule(_pattern(arguments.get("pattern")), DECISIONS[decision], justification)
    for example in _examples(arguments.get("match", ())):
        if not rule.matches(example):
            raise ValueError(f"the example `{shlex.join(example)[:200]}` does not match")
    for example in _examples(arguments.get("not_match", ())):
        if rule.matches(example):
            raise ValueError(f"the example `{shlex.join(example)[:200]}` matches")
    return rule


def _pattern(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("expected pattern to be a list of words that is not empty")
    return tuple(_words([each] if isinstance(each, str) else each) for each in value)


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) and word for word in value):
        raise ValueError("expected a word, or a list of words that is not empty")
    return tuple(value)


def _examples(value: object) -> list[tuple[str, ...]]:
    if not isinstance(value, list | tuple):
        raise ValueError("expected examples to be a list of commands")
    return [tuple(shlex.split(each)) if isinstance(each, str) else _words(each) for each in value]
