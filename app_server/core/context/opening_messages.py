"""The opening messages of a conversation: developer instructions, AGENTS.md, the environment. Pure."""

from __future__ import annotations

from app_server.core.context.environment_context import EnvironmentContext, user_text
from app_server.core.injected_messages import AGENTS_HEAD
from protocol.responses import InputText, MessageItem, ResponseItem


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
