"""The rules that hold in one conversation: those of the files when it was opened, and those that its user adds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from app_server.core.approvals.prefix_rules import PrefixRule, PrefixRules
from app_server.core.approvals.rule_proposals import proposed_prefix, rule_for
from app_server.core.approvals.rules_file import RulesUnusable, append_rule, read_rules
from app_server.core.threads import run_in_thread

log = logging.getLogger(__name__)


class RuleBook:
    """Rules, and where new ones are stored; without a home they last as long as the conversation."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        found = None if home is None else read_rules(home)
        self._rules = PrefixRules(() if found is None else found.rules)
        self.problems = () if found is None else found.problems
        """What the user should know about the files, in sentences."""

    def allows(self, words: Sequence[str]) -> bool:
        return self._rules.allows(words)

    def restriction(self, argv: Sequence[str]) -> PrefixRule | None:
        return self._rules.restriction(argv)

    def proposal(self, argv: Sequence[str], trusts: Callable[[str], bool]) -> tuple[str, ...] | None:
        """The rule that an approval of this command may propose."""
        return proposed_prefix(argv, self._rules, trusts=trusts)

    async def keep(self, words: Sequence[str]) -> str | None:
        """Allows commands that begin with `words`, here and in conversations that are opened later. Returns why the
        latter cannot be, if it cannot.
        """
        self._rules.add(rule_for(words))
        home = self._home
        if home is None:
            return None
        try:
            await run_in_thread(append_rule, home, words)
        except (OSError, RulesUnusable) as error:
            log.warning("a rule was not stored: %s", error)
            return f"The rule holds for this thread only, because it could not be stored: {error}"
        return None
