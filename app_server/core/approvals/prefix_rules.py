"""Rules about commands by their first words: allow, prompt, forbidden. Pure.

A rule decides questions and nothing else: what it allows runs in the sandbox of its turn, as it would after a yes.
`allows` accepts only what is certain; `restriction` finds what a command line shows, also behind control flow,
wrappers and nested shells. Where rules disagree, the strictest counts.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

from app_server.core.shell.dangerous_commands import WRAPPERS, is_dangerous, scripts_of
from app_server.core.shell.nested_commands import INTERPRETERS, commands_in
from protocol.records import dataclass

MAX_DEPTH = 8
MAX_WORK = 200_000
"""Characters of scripts and words that one search visits. A command line that has more may contain anything."""
ELEVATORS = frozenset({"sudo", "doas"})


class RuleDecision(IntEnum):
    """From the mildest to the strictest."""

    ALLOW = 0
    PROMPT = 1
    FORBIDDEN = 2


@dataclass(frozen=True, slots=True)
class PrefixRule:
    """Applies to commands that begin with these words."""

    pattern: tuple[tuple[str, ...], ...]
    """For each position the words that fit; never empty."""
    decision: RuleDecision = RuleDecision.ALLOW
    justification: str | None = None
    """The user's reason, which the model is sent."""

    def matches(self, words: Sequence[str]) -> bool:
        return len(words) >= len(self.pattern) and all(
            word in fitting for word, fitting in zip(words, self.pattern, strict=False)
        )

    def says_danger(self) -> bool:
        """Whether the rule itself names what is destroyed, so that its author has seen it."""
        return is_dangerous(tuple(fitting[0] for fitting in self.pattern))


UNCLEAR = PrefixRule((("",),), RuleDecision.PROMPT, "it is too long to be inspected")
"""Stands for the rules of a command line that cannot be searched for them."""


class PrefixRules:
    """All rules that hold in one conversation."""

    def __init__(self, rules: Iterable[PrefixRule] = ()) -> None:
        self._allowing: list[PrefixRule] = []
        self._restricting: list[PrefixRule] = []
        for rule in rules:
            self.add(rule)

    def add(self, rule: PrefixRule) -> None:
        (self._allowing if rule.decision is RuleDecision.ALLOW else self._restricting).append(rule)

    def allows(self, words: Sequence[str]) -> bool:
        """Whether this one command, without a shell around it, needs no approval.

        A rule covers a command that destroys only where it says so itself: who allowed `rm` did not mean `rm -rf`.
        """
        found = [rule for rule in self._allowing if rule.matches(words)]
        return bool(found) and (not is_dangerous(words) or any(rule.says_danger() for rule in found))

    def restriction(self, argv: Sequence[str]) -> PrefixRule | None:
        """The strictest rule that asks about, or forbids, anything in this command line."""
        if not self._restricting:
            return None
        found: PrefixRule | None = None
        for words in _Search().commands(argv):
            if found is not None and found.decision is RuleDecision.FORBIDDEN:
                break
            if words is None:
                return UNCLEAR
            for rule in self._restricting:
                if _fits(rule, words) and (found is None or rule.decision > found.decision):
                    found = rule
        return found


def _fits(rule: PrefixRule, words: Sequence[str]) -> bool:
    """A path to the program is the program."""
    return rule.matches(words) or rule.matches((os.path.basename(words[0]), *words[1:]))


class _Search:
    """Every command that a command line may run, within a fixed amount of work."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def commands(self, argv: Sequence[str], depth: int = 0) -> Iterator[Sequence[str] | None]:
        """Each by its words; None where there may be more that is not known."""
        self._left -= 10 + sum(map(len, argv))
        if depth == MAX_DEPTH or self._left < 0:
            yield None
            return
        if not argv:
            return
        yield argv
        program = os.path.basename(argv[0])
        if program in INTERPRETERS:
            for script in scripts_of(argv[1:]):
                yield from self._commands_of(script, depth + 1)
        elif program in WRAPPERS or program in ELEVATORS:
            for start in range(1, len(argv)):
                yield from self.commands(argv[start:], depth + 1)

    def _commands_of(self, script: str, depth: int) -> Iterator[Sequence[str] | None]:
        self._left -= 10 + len(script)
        found = commands_in(script) if self._left >= 0 else None
        if found is None:
            yield None
            return
        for command in found.commands:
            yield from self.commands(command.words, depth)
