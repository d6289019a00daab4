"""Rules about commands by their first words: allow, prompt, forbidden; and the rule that an approval may propose. Pure.

A rule decides whether the user is asked, and nothing else: a command that it allows runs in the sandbox of its turn, as
after an approval. `allows` accepts only what is certain. `restriction` finds every command that a command line shows,
including commands behind control flow, wrappers and nested shells. If rules disagree, the strictest counts.

A rule outlasts the thread and covers all words that follow. So one is proposed only for programs that cannot run other
programs, and never for destructive commands. A user who wants more writes it into the rules file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from app_server.engine.approvals.rules_text import PrefixRule, RuleDecision, rule_for
from app_server.engine.approvals.shell.dangerous_commands import is_dangerous
from app_server.engine.approvals.shell.git_commands import after_options
from app_server.engine.approvals.shell.quote import word_set
from app_server.engine.approvals.shell.reachable_commands import commands_of, program_name, programs_named
from app_server.engine.approvals.shell.safe_commands import is_known_safe
from app_server.engine.approvals.shell.shell_script import script_of, split_script

UNCLEAR = PrefixRule((("",),), RuleDecision.PROMPT, "it is too long to be inspected")
"""Rule that stands for the rules of a command line that is too long to be searched."""


class PrefixRules:
    """All rules of one conversation."""

    def __init__(self, rules: Iterable[PrefixRule] = ()) -> None:
        self._allowing: list[PrefixRule] = []
        self._restricting: list[PrefixRule] = []
        for rule in rules:
            self.add(rule)

    def add(self, rule: PrefixRule) -> None:
        (self._allowing if rule.decision is RuleDecision.ALLOW else self._restricting).append(rule)

    def allows(self, words: Sequence[str]) -> bool:
        """Return whether this one command, without a shell around it, needs no approval.

        A rule covers a destructive command only if its own words are destructive: a user who allowed `rm` did not mean
        `rm -rf`.
        """
        found = [rule for rule in self._allowing if rule.matches(words)]
        return bool(found) and (not is_dangerous(words) or any(map(_says_danger, found)))

    def restriction(self, argv: Sequence[str]) -> PrefixRule | None:
        """Return the strictest rule that asks about, or forbids, any command in this command line."""
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

    def proposal(self, argv: Sequence[str], trusts: Callable[[str], bool]) -> tuple[str, ...] | None:
        """Return the words of the one command in `argv` that needs the approval, if a rule with them would make this
        approval unnecessary and may be proposed; otherwise None. `trusts` is that of `is_known_safe`.
        """
        script = script_of(argv)
        commands = (tuple(argv),) if script is None else split_script(script) or ()
        asking = [
            words
            for words in commands
            if not (words[0] == "cd" or is_known_safe(words, trusts=trusts, allowed=self.allows))
        ]
        if len(set(asking)) != 1 or not _may_be_proposed(asking[0]):
            return None
        rule = rule_for(asking[0])
        saved = is_known_safe(
            argv, trusts=trusts, allowed=lambda words: rule.matches(words) or self.allows(words)
        )
        return asking[0] if saved else None


def _says_danger(rule: PrefixRule) -> bool:
    """Return whether the rule itself names a destructive command, so that its author has seen it."""
    return is_dangerous(tuple(fitting[0] for fitting in rule.pattern))


def _fits(rule: PrefixRule, words: Sequence[str]) -> bool:
    """Return whether a rule is about a command. A path to the program, or a pattern that fits its name, counts as the
    program. Options before a command of git do not change which command it is.
    """
    name, rest = program_name(words[0]), words[1:]
    return (
        rule.matches(words)
        or any(rule.matches((program, *rest)) for program in programs_named(name, rule.pattern[0]))
        or (name == "git" and rule.matches((name, *after_options(rest)[1])))
    )


CLOSED_PROGRAMS = word_set(
    "touch mkdir rmdir cp mv ln chmod chown chgrp mkfifo mktemp tee sync "
    "gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd base64 base32 iconv sleep"
)
"""Programs that start no other program, whatever their arguments are. Programs that only read need no approval; for
those that do, as for reading secrets, it is better to ask each time.
"""

MAX_WORDS = 32
MAX_CHARACTERS = 512
FOLDERS = ("/usr/bin/", "/bin/")


def _may_be_proposed(words: tuple[str, ...]) -> bool:
    program = words[0]
    for folder in FOLDERS:
        program = program.removeprefix(folder)
    return (
        program in CLOSED_PROGRAMS
        and len(words) <= MAX_WORDS
        and sum(map(len, words)) <= MAX_CHARACTERS
        and all(word.isprintable() for word in words)
        and not is_dangerous(words)
    )
