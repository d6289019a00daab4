"""Converts items and errors of turns from older events, and from the form of codex, into those of the engine. Pure.

The older form of rollouts has an event for each item that 0.58 shows. Newer versions also store events for patches and
calls of MCP servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar

from app_server.engine.storage.encode import WITH_STATUS
from app_server.engine.storage.line_reader import parse_event_msg
from app_server.engine.storage.record import text_of
from app_server.engine.storage.stored_item_lines import changes_of
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.item_values import ReviewOutputEvent
from app_server_protocol.engine.legacy import COMPACTED
from app_server_protocol.event_items import ImageInput, TextInput, UserInput

Kind = TypeVar("Kind", bound=Enum)

CALLS_ENDED: Final = ("patch_apply_end", "mcp_tool_call_end")
"""Events about ended calls that are items in the older form."""


def older_item(id: str, payload: Mapping[str, Json], *, after_compaction: bool) -> items.Item | None:
    """Return the item of an older event; None if the event has none, or if it is damaged."""
    kind, message = payload["type"], payload.get("message")
    if kind == "user_message" and isinstance(message, str):
        images = payload.get("images")
        content: list[UserInput] = [TextInput(text=message)] if message or not images else []
        if isinstance(images, list):
            content += [ImageInput(image_url=image) for image in images if isinstance(image, str)]
        return items.UserMessage(id, tuple(content))
    if kind == "agent_message" and isinstance(message, str):
        if after_compaction and message == COMPACTED:
            return items.ContextCompaction(id)
        return items.AgentMessage(id, (message,), text_of(payload, "phase"))
    if kind == "context_compacted":
        return items.ContextCompaction(id)
    if kind in CALLS_ENDED:
        return _call_ended(id, payload)
    if kind == "entered_review_mode":
        return items.EnteredReview(
            id, text_of(payload, "prompt") or "", text_of(payload, "user_facing_hint") or ""
        )
    return items.ExitedReview(id, _review(payload)) if kind == "exited_review_mode" else None


def _call_ended(id: str, payload: Mapping[str, Json]) -> items.Item | None:
    """Return the patch or the MCP tool call of such an event; None if it is damaged."""
    try:
        if payload["type"] == "patch_apply_end":
            return _patch_ended(id, payload)
        return _mcp_call_ended(id, payload)
    except (TypeError, AttributeError):
        return None


def _patch_ended(id: str, payload: Mapping[str, Json]) -> items.Item | None:
    changes = changes_of(payload.get("changes") or {})
    if not changes:
        return None  # older programs do not name the files; the history has the call
    status = payload.get("status") or ("completed" if payload.get("success") is True else "failed")
    output = {name: payload.get(name) or "" for name in ("stdout", "stderr")}
    return items.item_from_value(
        {"kind": "FileChange", "id": id, "changes": changes, "status": status, **output}
    )


def _mcp_call_ended(id: str, payload: Mapping[str, Json]) -> items.Item | None:
    result = payload.get("result")
    failed = not isinstance(result, dict) or "Ok" not in result
    status = "failed" if failed else "completed"
    called = {name: payload.get(name) for name in ("invocation", "result")}
    return items.item_from_value({"kind": "McpToolCall", "id": id, "status": status, **called})


def _review(payload: Mapping[str, Json]) -> ReviewOutputEvent | None:
    event = parse_event_msg(dict(payload))
    return getattr(event, "review_output", None)


def member_of(kind: type[Kind], value: Json) -> Kind | None:
    """Return the member of an enumeration with this value; None if there is none."""
    try:
        return kind(value)
    except ValueError:
        return None


def stored_error(value: Json) -> TurnError | None:
    if not isinstance(value, dict) or (message := text_of(value, "message")) is None:
        return None
    error_class, status = member_of(ErrorClass, value.get("class")), value.get("http_status")
    if error_class is None:
        error_class, status = _class_of(value.get("codex_error_info"))
    return TurnError(
        message, error_class, status if isinstance(status, int) else None, text_of(value, "details")
    )


def _class_of(info: Json) -> tuple[ErrorClass | None, Json]:
    """Return the class and the HTTP status of an error in the form in which codex stores it."""
    match info:
        case str():
            return member_of(ErrorClass, info), None
        case dict():
            kind = next((each for each in WITH_STATUS if each.value in info), None)
            fields = info.get(kind.value) if kind is not None else None
            return kind, fields.get("http_status_code") if isinstance(fields, dict) else None
        case _:
            return None, None
