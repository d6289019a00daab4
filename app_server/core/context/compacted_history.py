"""Builds a compacted history: the opening messages, the user's messages, and a summary of the rest. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.core.context.environment_context import user_text
from app_server.core.context.text_for_model import BYTES_PER_TOKEN, estimate_tokens, within_tokens
from app_server.core.injected_messages import is_injected
from protocol.responses import InputText, MessageItem, OutputText, ResponseItem

USER_MESSAGES_MAX_TOKENS = 20_000
"""Maximum size of the user's messages in a compacted history, newest first; the same as in codex 0.58."""

NO_SUMMARY = "(no summary available)"


class SummaryMessage(MessageItem):
    """A summary of the earlier history, as a user message. It looks like any other message to the model and on the
    wire. Only its type marks it, so that a user's text cannot imitate it.
    """


def summary_message(text: str) -> SummaryMessage:
    return SummaryMessage(role="user", content=(InputText(text=text),))


def collect_user_messages(items: Sequence[ResponseItem]) -> list[str]:
    """Return the user's own texts, oldest first, without injected messages and earlier `SummaryMessage`s."""
    out = []
    for item in items:
        if isinstance(item, MessageItem) and item.role == "user" and not isinstance(item, SummaryMessage):
            text = message_text(item)
            if text and not is_injected(text):
                out.append(text)
    return out


def message_text(item: MessageItem) -> str:
    return "\n".join(part.text for part in item.content if isinstance(part, InputText | OutputText))


def build_compacted_history(
    opening: Sequence[ResponseItem], user_messages: Sequence[str], summary: str
) -> list[ResponseItem]:
    """Return `opening` first, then the newest user messages that fit the budget in their order, then the summary."""
    kept: list[str] = []
    left = USER_MESSAGES_MAX_TOKENS
    for text in reversed(user_messages):
        size = estimate_tokens(text)
        if size > left:
            kept.append(within_tokens(text, left) if left > 0 else "")
            break
        kept.append(text)
        left -= size
    words = (user_text(text) for text in reversed(kept) if text)
    return [*opening, *words, summary_message(summary or NO_SUMMARY)]


def with_marked_summary(items: Sequence[ResponseItem], summary: str) -> list[ResponseItem]:
    """Mark the last message of a compacted history from another program as the summary, if it is that."""
    places = [n for n, item in enumerate(items) if _says(item, summary)]
    marked = list(items)
    if places:
        marked[places[-1]] = summary_message(summary)
    return marked


def _says(item: ResponseItem, text: str) -> bool:
    return isinstance(item, MessageItem) and item.role == "user" and message_text(item) == text


def estimate_history(items: Sequence[ResponseItem], instructions: str) -> int:
    """Return the estimated size of a request with this history, in tokens."""
    size = sum(len(item.to_json()) for item in items) + len(instructions)
    return -(-size // BYTES_PER_TOKEN)
