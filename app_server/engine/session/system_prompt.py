"""Tells the model the instructions that a client gave for the session. Appended ones are a developer message: before
the first user message, after a change, and again after a compaction. Overriding ones are the instructions of each
request, in place of the server's. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app_server.engine.context.history import message_text
from app_server_protocol.engine.thread_settings import PromptMode, SystemPrompt
from app_server_protocol.responses import InputText, MessageItem, ResponseItem
from app_server_protocol.rollout import SESSION_HEAD

CLOSE: Final = "</session_instructions>"
REPLACES: Final = "These instructions replace the earlier session instructions."
WITHDRAWN: Final = f"{SESSION_HEAD}\nThe earlier session instructions no longer apply.\n{CLOSE}"


def overriding_text(prompt: SystemPrompt | None) -> str | None:
    """Return the instructions that stand in for those of the server; None if the client overrides none."""
    return prompt.text if prompt is not None and prompt.mode is PromptMode.OVERRIDE else None


def prompt_message(prompt: SystemPrompt | None, told: str | None) -> MessageItem | None:
    """Return the message about appended instructions that the model was not yet told; None if no message is due.
    `told`: the message that it was sent last; None if there was none.
    """
    known = None if told == WITHDRAWN else told
    if prompt is None or prompt.mode is not PromptMode.APPEND:
        return None if known is None else _message(WITHDRAWN)
    first, later = (_in_tags(text) for text in (prompt.text, f"{REPLACES}\n\n{prompt.text}"))
    if known in (first, later):
        return None
    return _message(first if known is None else later)


def lasting_prompt(prompt: SystemPrompt | None) -> list[MessageItem]:
    """Return the message for a history without one; empty if nothing is appended."""
    message = prompt_message(prompt, None)
    return [] if message is None else [message]


def told_prompt(items: Sequence[ResponseItem]) -> str | None:
    """Return the message about appended instructions that the model was sent last; None if it was sent none."""
    for item in reversed(items):
        if isinstance(item, MessageItem) and item.role == "developer":
            text = message_text(item)
            if text.startswith(SESSION_HEAD):
                return text
    return None


def _in_tags(text: str) -> str:
    return f"{SESSION_HEAD}\n{text}\n{CLOSE}"


def _message(text: str) -> MessageItem:
    return MessageItem(role="developer", content=(InputText(text=text),))
