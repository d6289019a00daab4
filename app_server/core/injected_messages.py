"""How messages begin that the server adds to a history in the name of the user. Pure.

By these beginnings they are recognised later, also in conversations that codex stored, which begins them in the same
way: previews and compactions use only what the user wrote. Imports nothing, because the first list needs it.
"""

from __future__ import annotations

from typing import Final

ENVIRONMENT_HEAD: Final = "<environment_context>"
AGENTS_HEAD: Final = "# AGENTS.md instructions for "
OLD_AGENTS_HEAD: Final = "<user_instructions>"
"""Of earlier versions of codex."""
USER_SHELL_HEAD: Final = "<user_shell_command>"
SKILL_HEAD: Final = "<skill>\n"
MENTION_HEAD: Final = "<mention>\n"
GOAL_HEAD: Final = '<codex_internal_context source="goal">\n'

_HEADS: Final = (
    *(ENVIRONMENT_HEAD, AGENTS_HEAD, OLD_AGENTS_HEAD, USER_SHELL_HEAD, SKILL_HEAD, MENTION_HEAD, GOAL_HEAD),
)


def is_injected(text: str) -> bool:
    """Return whether the server wrote this user message."""
    return text.lstrip().startswith(_HEADS)
