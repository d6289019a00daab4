"""Which rule a command approval may propose: the first words of commands that need no approval from then on. Pure.

A rule outlasts the thread and covers whatever words follow. So it is proposed only for programs that cannot run
others, and never for what destroys. A user who wants more writes it into the rules file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app_server.core.approvals.prefix_rules import PrefixRule, PrefixRules
from app_server.core.shell.dangerous_commands import is_dangerous
from app_server.core.shell.quote import word_set
from app_server.core.shell.safe_commands import is_known_safe
from app_server.core.shell.script import script_of, split_script

CLOSED_PROGRAMS = word_set(
    "touch mkdir rmdir cp mv ln chmod chown chgrp mkfifo mktemp tee sync "
    "gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd base64 base32 iconv sleep"
)
"""Programs that start no other program, whatever their arguments say. Those that only read are not asked about; where
they are, as for secrets, it is better to be asked each time.
"""

MAX_WORDS = 32
MAX_CHARACTERS = 512
FOLDERS = ("/usr/bin/", "/bin/")


def proposed_prefix(
    argv: Sequence[str], rules: PrefixRules, *, trusts: Callable[[str], bool]
) -> tuple[str, ...] | None:
    """The words of the one command in `argv` that needs the approval, if a rule with them would make this approval
    unnecessary and may be proposed; otherwise None. `trusts` as in `is_known_safe`.
    """
    script = script_of(argv)
    commands = (tuple(argv),) if script is None else split_script(script) or ()
    asking = [words for words in commands if not _runs(words, rules, trusts)]
    if len(set(asking)) != 1 or not _may_be_proposed(asking[0]):
        return None
    rule = rule_for(asking[0])
    saved = is_known_safe(
        argv, trusts=trusts, allowed=lambda words: rule.matches(words) or rules.allows(words)
    )
    return asking[0] if saved else None


def rule_for(words: Sequence[str]) -> PrefixRule:
    return PrefixRule(tuple((word,) for word in words))


def _runs(words: tuple[str, ...], rules: PrefixRules, trusts: Callable[[str], bool]) -> bool:
    return words[0] == "cd" or is_known_safe(words, trusts=trusts, allowed=rules.allows)


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
