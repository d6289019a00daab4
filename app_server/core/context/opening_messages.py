"""The opening messages of a conversation: developer instructions, AGENTS.md, the environment. Pure.

It also recognises them later: previews and compactions use only the user's own messages.
"""

from __future__ import annotations

from app_server.core.context.environment_context import OPEN, EnvironmentContext, user_text
from protocol.responses import InputText, MessageItem, ResponseItem

AGENTS_HEAD = "# AGENTS.md instructions for "
_OLD_AGENTS_HEAD = "<user_instructions>"  # in earlier rollouts
SKILL_HEAD = "<skill>\n"
MENTION_HEAD = "<mention>\n"
GOAL_HEAD = '<codex_internal_context source="goal">\n'
"""Messages that the server adds to what the user says. Newer codex begins them in the same way."""


def project_instructions(cwd: str, text: str) -> MessageItem:
    return user_text(f"{AGENTS_HEAD}{cwd}\n\n<INSTRUCTIONS>\n{text}\n</INSTRUCTIONS>")


def developer_message(text: str) -> MessageItem:
    return MessageItem(role="developer", content=(InputText(text=text),))


def opening_messages(
    environment: EnvironmentContext, *, developer: str | None, agents: str | None
) -> list[ResponseItem]:
    """In this order: developer instructions, AGENTS.md, the environment."""
    out: list[ResponseItem] = []
    if developer:
        out.append(developer_message(developer))
    if agents:
        out.append(project_instructions(environment.cwd or "", agents))
    out.append(environment.message())
    return out


def is_session_prefix(text: str) -> bool:
    """Whether the server wrote this user message: as part of the opening, or beside the user's words."""
    head = text.lstrip()
    return head.startswith((OPEN, AGENTS_HEAD, _OLD_AGENTS_HEAD, SKILL_HEAD, MENTION_HEAD, GOAL_HEAD))
