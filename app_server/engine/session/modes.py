"""Tells the model the mode in which it works with the user: by a developer message when the mode changes, and again
after a compaction. The instructions, which begin every request, do not mention the mode and stay as they are. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from app_server.engine.context.history import message_text
from app_server.engine.context.instructions import instruction_text
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import TurnMode
from app_server_protocol.responses import InputText, MessageItem, ResponseItem
from app_server_protocol.rollout import CODEX_MODE_HEAD, MODE_HEAD

CLOSE = "</mode_instructions>"


def mode_message(settings: ThreadSettings, told: str | None) -> MessageItem | None:
    """Return the message about a mode that the model was not yet told; None if no message is due. `told`: the mode that
    it was told last; None if it was told none, which means the default mode.
    """
    text = _mode_text(settings)
    if text is None and told is not None:
        text = _in_tags(instruction_text("default"))
    if text is None or text == told:
        return None
    return MessageItem(role="developer", content=(InputText(text=text),))


def lasting_mode(settings: ThreadSettings) -> list[MessageItem]:
    """Return the message about the mode for a history without one; empty in the default mode."""
    message = mode_message(settings, None)
    return [] if message is None else [message]


def told_mode(items: Sequence[ResponseItem]) -> str | None:
    """Return the mode that the model was told last, by this server or by codex; None if it was told none."""
    for item in reversed(items):
        if isinstance(item, MessageItem) and item.role == "developer":
            text = message_text(item)
            if text.startswith((MODE_HEAD, CODEX_MODE_HEAD)):
                return text
    return None


def _mode_text(settings: ThreadSettings) -> str | None:
    """Return the text about the mode; None for the default mode without instructions of the client."""
    text = settings.mode.instructions
    if text is None and settings.mode.kind is TurnMode.PLAN:
        text = instruction_text("plan")
    return None if text is None else _in_tags(text)


def _in_tags(text: str) -> str:
    return f"{MODE_HEAD}\n{text.strip()}\n{CLOSE}"
