"""The messages that open a conversation: the developer's words, AGENTS.md, the environment. Pure.

Also tells them apart later: a preview or a compaction wants the user's own words, not these.
"""

from __future__ import annotations

from app_server.core.context.environment import OPEN, EnvironmentContext, user_text
from protocol.responses import InputText, MessageItem, ResponseItem

AGENTS_HEAD = "# AGENTS.md instructions for "
_OLD_AGENTS_HEAD = "<user_instructions>"  # how earlier recordings wrote it


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
    """Whether a user message was written by the server to set the scene."""
    head = text.lstrip()
    return head.startswith((OPEN, AGENTS_HEAD, _OLD_AGENTS_HEAD))
