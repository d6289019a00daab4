"""The messages of a stored conversation without models: as JSON values, in the form of the conversation API.

Most conversations have messages of a few simple kinds only. For all others, and for files with damaged or unusual
lines, `reader` has the models. Fast to import.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app_server.core.rollout.disk import open_for_reading
from app_server.core.rollout.head import is_session_meta
from app_server.core.rollout.objects import parse_object
from app_server.core.rollout.persistence_policy import PERSISTED_EVENTS
from app_server.core.rollout.rollout_lines import cut_line, read_lines
from app_server.core.rollout.rollout_names import conversation_of
from protocol.ids import ConversationId, parse_conversation_id
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

TAKES_BACK: Final = b"thread_rolled_back"

WITHOUT_MESSAGES: Final = frozenset((b"response_item", b"turn_context", b"compacted"))
"""Kinds of lines."""

ABORT_REASONS: Final = frozenset(("interrupted", "replaced", "review_ended"))

USAGE: Final = (
    *("input_tokens", "cached_input_tokens", "output_tokens"),
    *("reasoning_output_tokens", "total_tokens"),
)


class NotPlain(Exception):
    """Something that only the models understand."""


@dataclass(frozen=True, slots=True)
class PlainMessages:
    conversation_id: ConversationId
    messages: tuple[Json, ...]


def plain_messages(path: Path) -> PlainMessages | None:
    """None for a file that has anything else. Raises OSError and RolloutUnreadable."""
    fd = open_for_reading(path)
    try:
        return _read(fd, path)
    except (NotPlain, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)


def _read(fd: int, path: Path) -> PlainMessages:
    lines = read_lines(fd)
    stated = _conversation_id(next(lines, b""))
    payloads: list[bytes] = []
    for line in lines:
        kind, payload, name = cut_line(line)
        if kind == b"event_msg":
            if name in MESSAGES:
                payloads.append(payload)
            elif name is None or name == TAKES_BACK or name.decode() in PERSISTED_EVENTS:
                raise NotPlain
        elif kind not in WITHOUT_MESSAGES:
            raise NotPlain
    found = json.loads("[" + b",".join(payloads).decode() + "]")
    if len(found) != len(payloads):
        raise NotPlain
    return PlainMessages(conversation_of(path.name, stated), tuple(map(_message, found)))


def _conversation_id(line: bytes) -> str:
    kind, payload, _ = cut_line(line)
    meta = parse_object(payload) if kind == b"session_meta" else None
    if meta is None or not is_session_meta(meta) or parse_conversation_id(meta["id"]) is None:
        raise NotPlain
    texts = [meta.get(key) for key in ("instructions", "model_provider")]
    git = {} if meta.get("git") is None else meta["git"]
    if (
        not all(text is None or isinstance(text, str) for text in texts)
        or not isinstance(meta.get("source", "vscode"), str)
        or not isinstance(git, dict)
        or not all(value is None or isinstance(value, str) for value in git.values())
        or not isinstance(meta.get("forked_from_id", ""), str)
        or "client_tools" in meta
    ):
        raise NotPlain
    return str(meta["id"])


def _message(payload: Json) -> Json:
    if not isinstance(payload, dict):
        raise NotPlain
    name = payload["type"]
    return {"type": name, **MESSAGES[name.encode()](payload)}


def _user_message(payload: Mapping[str, Json]) -> Mapping[str, Json]:
    images = payload.get("images")
    if images is None:
        return _message_text(payload)
    if not isinstance(images, list) or not all(isinstance(each, str) for each in images):
        raise NotPlain
    return {**_message_text(payload), "images": images}


def _text(field: str) -> Callable[[Mapping[str, Json]], Mapping[str, Json]]:
    def text(payload: Mapping[str, Json]) -> Mapping[str, Json]:
        value = payload.get(field)
        if not isinstance(value, str):
            raise NotPlain
        return {field: value}

    return text


_message_text = _text("message")


def _turn_aborted(payload: Mapping[str, Json]) -> Mapping[str, Json]:
    if payload.get("reason") not in ABORT_REASONS:
        raise NotPlain
    return {"reason": payload["reason"]}


def _token_count(payload: Mapping[str, Json]) -> Mapping[str, Json]:
    info, limits = _object(payload, "info"), _object(payload, "rate_limits")
    return {
        "info": info
        and {
            "total_token_usage": _usage(info, "total_token_usage"),
            "last_token_usage": _usage(info, "last_token_usage"),
            "model_context_window": _number(info, "model_context_window"),
        },
        "rate_limits": limits
        and {"primary": _window(limits, "primary"), "secondary": _window(limits, "secondary")},
    }


def _usage(info: Mapping[str, Json], field: str) -> Json:
    usage = _object(info, field)
    if usage is None:
        raise NotPlain
    return {name: _number({name: 0, **usage}, name) for name in USAGE}


def _window(limits: Mapping[str, Json], field: str) -> Json:
    window = _object(limits, field)
    if window is None:
        return None
    used = window.get("used_percent")
    if isinstance(used, bool) or not isinstance(used, int | float) or not math.isfinite(used):
        raise NotPlain
    return {
        "used_percent": float(used),
        "window_minutes": _number(window, "window_minutes"),
        "resets_at": _number(window, "resets_at"),
    }


def _object(fields: Mapping[str, Json], name: str) -> Mapping[str, Json] | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, dict) or not value):
        raise NotPlain
    return value


def _number(fields: Mapping[str, Json], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and type(value) is not int:
        raise NotPlain
    return value


MESSAGES: Final[Mapping[bytes, Callable[[Mapping[str, Json]], Mapping[str, Json]]]] = {
    b"user_message": _user_message,
    b"agent_message": _message_text,
    b"agent_reasoning": _text("text"),
    b"agent_reasoning_raw_content": _text("text"),
    b"token_count": _token_count,
    b"turn_aborted": _turn_aborted,
}
"""How each kind is shown."""
