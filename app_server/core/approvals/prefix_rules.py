"""Rules about commands by their first words: allow, prompt, forbidden. Pure.

A rule decides questions and nothing else: what it allows runs in the sandbox of its turn, as it would after a yes.
`allows` accepts only what is certain; `restriction` finds what a command line shows, also behind control flow,
wrappers and nested shells. Where rules disagree, the strictest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from app_server.core.shell.dangerous_commands import is_dangerous
from app_server.core.shell.git_commands import after_options
from app_server.core.shell.program_arguments import program_name, programs_named
from app_server.core.shell.reachable_commands import commands_of
from protocol.records import dataclass


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
        for command in commands_of(argv):
            if found is not None and found.decision is RuleDecision.FORBIDDEN:
                break
            if command is None:
                return UNCLEAR
            for rule in self._restricting:
                if (
                    command.words
                    and _fits(rule, command.words)
                    and (found is None or rule.decision > found.decision)
                ):
                    found = rule
        return found


def _fits(rule: PrefixRule, words: Sequence[str]) -> bool:
    """A path to the program, and a pattern that fits its name, are the program. Options before a command of git do not
    change which one it is.
    """
    name, rest = program_name(words[0]), words[1:]
    return (
        rule.matches(words)
        or any(rule.matches((program, *rest)) for program in programs_named(name, rule.pattern[0]))
        or (name == "git" and rule.matches((name, *after_options(rest)[1])))
    )
