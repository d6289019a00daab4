"""Converts items to lines about whole items and back, in the form of codex since 0.159: `item_completed` with the item
under a `type`, its turn and its times. Pure.

What the engine knows of an item and that form has no field for is stored beside the item, as `kept`; other readers
ignore it. Items of unknown kinds are ignored. An item of a known kind that lacks a field is None, like a damaged one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from app_server.engine.storage import record
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items
from app_server_protocol.engine.legacy import NOT_RUN
from app_server_protocol.event_items import TextInput

ITEM_COMPLETED: Final = "item_completed"
TURN_ITEM: Final = "turn_item"
"""Type of a line that holds an item in a file that does not have the paginated form."""

BY_CRASH: Final = "by_crash"
"""Member of a line about a cut item: a crash cut it and not an interrupt, so the conversation API shows it."""

KNOWN: Final = {
    **{name: name for name in ("UserMessage", "AgentMessage", "Plan", "Reasoning", "CommandExecution")},
    **{name: name for name in ("FileChange", "McpToolCall", "DynamicToolCall", "WebSearch", "ImageView")},
    "EnteredReviewMode": "EnteredReview",
    "ExitedReviewMode": "ExitedReview",
    "ContextCompaction": "ContextCompaction",
    "HookPrompt": "HookPrompt",
}
"""Names of the engine's item classes, by the kind of the item in that form."""
_NAMES: Final = {ours: theirs for theirs, ours in KNOWN.items()}

_STARTED_ON_TERMINAL: Final = "unified_exec_startup"
_SOURCES: Final = {
    "user_shell": "user_shell",
    _STARTED_ON_TERMINAL: "terminal",
    "unified_exec_interaction": "terminal",
}
_FILE: Final = "file://"
_NANOSECONDS: Final = 1_000_000_000


# --- reading
def item_of_line(name: str | None, payload: Mapping[str, Json]) -> items.Item | None:
    """Return the item in the payload of such a line; None if its kind is unknown, or if it is damaged."""
    value = payload.get("item")
    if not isinstance(value, dict):
        return None
    if name == TURN_ITEM:
        return items.item_from_value(value)
    kept = payload.get("kept")
    if kept is None and (message := _plain_message(value)) is not None:
        return message
    read = _ITEM_READERS.get(str(value.get("type")))
    if read is None:
        return None
    try:
        fields = {"id": value.get("id"), **read(value), **(kept if isinstance(kept, dict) else {})}
    except (TypeError, ValueError, AttributeError, KeyError):
        return None
    return items.item_from_value({"kind": KNOWN[value["type"]], **fields})


def _plain_message(value: Mapping[str, Json]) -> items.UserMessage | items.AgentMessage | None:
    """Return a message that has one text; None for any other item. Most lines about items are such messages, and
    validation by their models would take a fifth of the time in which a long thread is read.
    """
    match value:
        case {"type": "AgentMessage", "id": str(id), "content": [{"text": str(text)}]}:
            phase = value.get("phase")
            return items.AgentMessage(id, (text,), phase) if phase is None or isinstance(phase, str) else None
        case {"type": "UserMessage", "id": str(id), "content": [{"type": "text", "text": str(text)} as part]}:
            client_id = value.get("client_id")
            if part.get("text_elements") or not (client_id is None or isinstance(client_id, str)):
                return None
            return items.UserMessage(id, (TextInput(text=text),), client_id)
        case _:
            return None


def is_damaged(name: str | None, payload: Mapping[str, Json]) -> bool:
    """Return whether the line has an item of a known kind that cannot be read."""
    value = payload.get("item")
    if item_of_line(name, payload) is not None:
        return False
    if not isinstance(value, dict):
        return True
    return value.get("kind") in items.KINDS if name == TURN_ITEM else value.get("type") in KNOWN


def _user_message(value: Mapping[str, Json]) -> dict[str, Json]:
    sent = [part for part in value["content"] if isinstance(part, dict) and part.get("type") in _SENT]
    seen = [part for part in sent if part["type"] in ("text", "image")]
    return {
        "content": seen,
        "client_id": value.get("client_id"),
        "sent": None if len(seen) == len(sent) else sent,
    }


_SENT: Final = ("text", "image", "local_image", "skill", "mention")


def _agent_message(value: Mapping[str, Json]) -> dict[str, Json]:
    return {"content": [part["text"] for part in value["content"]], "phase": value.get("phase")}


def _reasoning(value: Mapping[str, Json]) -> dict[str, Json]:
    return {"summary": value.get("summary_text") or [], "content": value.get("raw_content") or []}


def _command(value: Mapping[str, Json]) -> dict[str, Json]:
    code = value.get("exit_code")
    return {
        "command": value["command"],
        "cwd": _path(value["cwd"]),
        "parsed": value.get("parsed_cmd") or [],
        "source": _SOURCES.get(str(value.get("source")), "agent"),
        "status": _status(value),
        "process_id": value.get("process_id"),
        "output": value.get("aggregated_output") or "",
        "exit_code": None if code == NOT_RUN else code,
        "seconds": _seconds(value.get("duration")),
    }


def _file_change(value: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "changes": changes_of(value["changes"]),
        "status": _status(value),
        "stdout": value.get("stdout") or "",
        "stderr": value.get("stderr") or "",
    }


def changes_of(changes: Mapping[str, Json]) -> dict[str, Json]:
    """Return the changes of a patch by path, with the tags of the engine's models."""
    found: dict[str, Json] = {}
    for path, change in changes.items():
        kind = change.get("type")
        # Older programs write {"add": {…}}, which is the form of the models already.
        rest = {name: field for name, field in change.items() if name != "type"}
        found[path] = change if kind is None else {kind: rest}
    return found


def _mcp_call(value: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "invocation": {name: value.get(name) for name in ("server", "tool", "arguments")},
        "status": _status(value),
        "result": _mcp_result(value),
        "seconds": _seconds(value.get("duration")),
    }


def _mcp_result(value: Mapping[str, Json]) -> Json:
    error, result = value.get("error"), value.get("result")
    if error is not None:
        return {"Err": error.get("message") if isinstance(error, dict) else str(error)}
    return None if result is None else {"Ok": result}


def _dynamic_call(value: Mapping[str, Json]) -> dict[str, Json]:
    return {
        **{name: value.get(name) for name in ("tool", "arguments", "namespace", "success")},
        "status": _status(value),
        "content": value.get("content_items"),
        "seconds": _seconds(value.get("duration")),
    }


def _status(value: Mapping[str, Json]) -> str:
    status = value.get("status")
    return status if status in ("completed", "declined") else "failed"


def _seconds(duration: Json) -> float | None:
    match duration:
        case {"secs": int(seconds), "nanos": int(nanos)}:
            return seconds + nanos / _NANOSECONDS
        case _:
            return None


def _path(text: str) -> str:
    return unquote(text.removeprefix(_FILE)) if text.startswith(_FILE) else text


_ITEM_READERS: Final[Mapping[str, Callable[[Mapping[str, Json]], dict[str, Json]]]] = {
    "UserMessage": _user_message,
    "AgentMessage": _agent_message,
    "Plan": lambda value: {"text": value["text"]},
    "Reasoning": _reasoning,
    "CommandExecution": _command,
    "FileChange": _file_change,
    "McpToolCall": _mcp_call,
    "DynamicToolCall": _dynamic_call,
    "WebSearch": lambda value: {"query": value.get("query") or "", "action": value.get("action")},
    "ImageView": lambda value: {"path": _path(value["path"])},
    "EnteredReviewMode": lambda value: {
        "prompt": _review_prompt(value.get("target")),
        "hint": value.get("user_facing_hint") or "",
    },
    "ExitedReviewMode": lambda value: {"output": value.get("review_output")},
    "ContextCompaction": lambda value: {},
    "HookPrompt": lambda value: {
        "fragments": [{"text": each["text"], "hook_run_id": each["hookRunId"]} for each in value["fragments"]]
    },
}


def _review_prompt(target: Json) -> str:
    return str(target.get("instructions") or "") if isinstance(target, dict) else ""


def search_id(query: str) -> str:
    """Return an id for a web search, made from its query: web searches are stored without their ids."""
    return f"search {query}"


def search_query(payload: Mapping[str, Json]) -> str:
    """Return the query of the web search in an entry; empty if it has none."""
    action = payload.get("action")
    return (record.text_of(action, "query") if isinstance(action, dict) else None) or ""


# --- writing
def item_fields(item: items.Item) -> dict[str, Json]:
    """Return the members of a line that hold an item: `item`, and `kept` if the form lacks fields for a part of it."""
    value: dict[str, Json] = items.item_to_value(item)
    shown, kept = _written(item, value)
    shown = {"type": _NAMES[type(item).__name__], "id": item.id, **shown}
    return {"item": shown, "kept": kept} if kept else {"item": shown}


def _written(item: items.Item, value: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:  # noqa: C901 - one case for each kind
    match item:
        case items.UserMessage():
            return _written_words(item, value)
        case items.AgentMessage():
            phase = {} if item.phase is None else {"phase": item.phase}
            return {"content": [{"type": "Text", "text": text} for text in item.content], **phase}, {}
        case items.Plan():
            return {"text": item.text}, {}
        case items.Reasoning():
            shown = {"summary_text": value["summary"], "raw_content": value["content"]}
            return shown, {"show_content": True} if item.show_content else {}
        case items.CommandExecution():
            return _written_command(item, value)
        case items.FileChange():
            changes = {
                path: {"type": kind, **fields}
                for path, tagged in value["changes"].items()
                for kind, fields in tagged.items()
            }
            outcome = {name: value[name] for name in ("stdout", "stderr")}
            return {"changes": changes, "status": _ended(item.status), **outcome}, _open(item.status)
        case items.McpToolCall():
            shown = {**value["invocation"], "status": _ended(item.status), **_written_result(value["result"])}
            hint = {} if item.read_only_hint is None else {"read_only_hint": item.read_only_hint}
            return {**shown, **_written_time(item.seconds)}, {**_open(item.status), **hint}
        case items.DynamicToolCall():
            shown = {name: value[name] for name in ("tool", "arguments", "namespace", "success")}
            shown |= {"status": _ended(item.status), "content_items": value["content"]}
            return {**shown, **_written_time(item.seconds)}, _open(item.status)
        case items.WebSearch():
            action = {"type": "other"} if item.action is None else value["action"]
            return {"query": item.query, "action": action}, {"action": None} if item.action is None else {}
        case items.ImageView():
            return {"path": _url(item.path)}, {}
        case items.EnteredReview():
            target = {"type": "custom", "instructions": item.prompt}
            return {"target": target, "user_facing_hint": item.hint}, {}
        case items.ExitedReview():
            return {"review_output": value["output"]}, {}
        case items.ContextCompaction():
            return {}, {}
        case items.HookPrompt():
            said = [{"text": each.text, "hookRunId": each.hook_run_id} for each in item.fragments]
            return {"fragments": said}, {}


def _written_words(
    item: items.UserMessage, value: Mapping[str, Json]
) -> tuple[dict[str, Json], dict[str, Json]]:
    parts: Sequence[Json] = value["content"] if item.sent is None else value["sent"]
    content = [{"text_elements": [], **part} if part["type"] == "text" else part for part in parts]
    client = {} if item.client_id is None else {"client_id": item.client_id}
    kept = {} if item.sent is None else {"content": value["content"], "sent": value["sent"]}
    if item.sent is None and any(part["type"] == "local_image" for part in parts):
        kept = {"content": value["content"], "sent": None}
    return {**client, "content": content}, kept


def _written_command(
    item: items.CommandExecution, value: Mapping[str, Json]
) -> tuple[dict[str, Json], dict[str, Json]]:
    source = item.source.value
    if item.source is items.CommandSource.TERMINAL:
        source = _STARTED_ON_TERMINAL
    elif item.source is items.CommandSource.PROVIDER:
        source = items.CommandSource.AGENT.value
    shown = {
        **({} if item.process_id is None else {"process_id": item.process_id}),
        "command": value["command"],
        "cwd": _url(item.cwd),
        "parsed_cmd": value["parsed"],
        "source": source,
        "status": _ended(item.status),
        "aggregated_output": item.output,
        "exit_code": NOT_RUN if item.exit_code is None else item.exit_code,
        **_written_time(item.seconds),
    }
    kept: dict[str, Json] = _open(item.status)
    if item.line is not None:
        kept["line"] = item.line
    if item.source is items.CommandSource.PROVIDER:
        kept["source"] = item.source.value
    return shown, kept


def _written_result(result: Json) -> dict[str, Json]:
    match result:
        case {"Ok": ok}:
            return {"result": ok}
        case {"Err": why}:
            return {"error": {"message": why}}
        case _:
            return {}


def _written_time(seconds: float | None) -> dict[str, Json]:
    if seconds is None:
        return {}
    nanos = round(seconds * _NANOSECONDS)
    return {"duration": {"secs": nanos // _NANOSECONDS, "nanos": nanos % _NANOSECONDS}}


def _ended(status: items.ItemStatus) -> str:
    return "failed" if status is items.ItemStatus.IN_PROGRESS else status.value


def _open(status: items.ItemStatus) -> dict[str, Json]:
    """Return the part of `kept` for an item that was cut before it had an outcome; empty for other items."""
    return {"status": status.value} if status is items.ItemStatus.IN_PROGRESS else {}


def _url(path: str) -> str:
    return _FILE + quote(path) if os.path.isabs(path) else path


def item_line(
    thread_id: str, turn_id: str | None, times: tuple[int, int], item: items.Item, *, cut: bool = False
) -> dict[str, Json]:
    """Return the members of a line about an item, except for its `type`. `times`: start and end of the item in
    milliseconds since 1970; 0 if it is not known.
    """
    started, ended = times
    said = {"thread_id": thread_id, "turn_id": turn_id or "", **item_fields(item)}
    said |= {"started_at_ms": started or ended, "completed_at_ms": ended or started}
    return {**said, "cut": True} if cut else said
