"""The texts of people and of the model in the messages of all APIs, and the marks by which they are found."""

import re
from collections.abc import Iterable

from app_server_protocol.encoding import Json

MARK = re.compile(r"\bm\d+\b")
SAYING = re.compile(r"[ws]\d+\b")

SAYINGS = (
    "user_message",
    "agent_message",
    "user_message_chunk",
    "agent_message_chunk",
    "userMessage",
    "agentMessage",
)
"""Types of messages of people and of the model, in the spelling of each API."""


def marks(texts: Iterable[str | None]) -> list[str]:
    """Return the marks with which the texts of people and of the model begin. A text that broke off in its mark, `s12`,
    may consist of `s1`, which is not the mark of another.
    """
    found = (SAYING.match(text) for text in texts if text)
    return [each[0] + ("" if each.string[each.end() :] else "…") for each in found if each]


def marks_of(thread: Json) -> list[str]:
    """List the marks of the messages in a thread with its turns."""
    items = [item for turn in thread["turns"] for item in turn["items"]]
    return marks(_text_of(item) for item in items if item["type"] in SAYINGS)


def _text_of(item: Json) -> str:
    return "".join(part.get("text", "") for part in item["content"]) if "content" in item else item["text"]


def thread_of(params: Json) -> str | None:
    """Return the thread that a message of any API is about; None if it names none."""
    names = ("threadId", "conversationId", "sessionId")
    return next((params[name] for name in names if name in params), None)


def call_of(params: Json) -> str | None:
    """Return the item or the call that a question of any API is about; None if it names none."""
    id: str | None = (
        params.get("itemId") or params.get("callId") or params.get("toolCall", {}).get("toolCallId")
    )
    return id


def is_begin(message: Json, id: str) -> bool:
    """Return whether the item or call begins with the message."""
    params = message.get("params") or {}
    return bool(
        (params.get("item") or {}).get("id") == id or (params.get("update") or {}).get("toolCallId") == id
    )


def words(text: str) -> list[Json]:
    """Return a text as the input of a turn."""
    return [{"type": "text", "text": text}]
