"""Reads the entries of hook files into definitions. Pure.

A file has groups of handlers by event: `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command",
"command": "…"}]}]}}`. An entry with a mistake costs itself and is reported; its neighbours keep their positions, which
are part of their keys. Fields and events that are unknown belong to other programs and are passed over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, TypeVar

from msgspec import Struct

from app_server.engine.hooks.hook_definitions import (
    DEFAULT_TIMEOUT,
    LAST_SECONDS,
    LONGEST_TIMEOUT,
    HookDefinition,
    OnFailure,
)
from app_server.engine.hooks.matching import BadMatcher, name_pattern
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEvent, HookHandlerType, HookRole

MOST_HANDLERS: Final = 1000
"""Maximum number of handlers of one file."""
_EVENTS: Final = {event.value: event for event in HookEvent}
_TYPES: Final = {
    "command": HookHandlerType.COMMAND,
    "mcp_tool": HookHandlerType.MCP_TOOL,
    "mcpTool": HookHandlerType.MCP_TOOL,
    "prompt": HookHandlerType.PROMPT,
    "agent": HookHandlerType.AGENT,
}


class HookEntry(Struct, frozen=True):
    """A definition with its position in the file, and its digest."""

    group: int
    index: int
    definition: HookDefinition
    digest: str


class EntryProblem(Struct, frozen=True):
    """An entry that is no hook: a sentence about it, without the name of the file."""

    message: str
    is_warning: bool = False
    """Whether the entry is understood and merely does not run."""


class _Wrong(Exception):
    """The entry is no hook. The text is a sentence without its place."""


def read_entries(table: Json) -> Iterator[HookEntry | EntryProblem]:
    """Yield the hooks of a file in the order of events, and what is wrong with other entries. `table`: the value of its
    key `hooks`.
    """
    if not isinstance(table, Mapping):
        yield EntryProblem(f"`hooks` must be a table with lists by event, not {_kind(table)}")
        return
    unknown = [name for name in table if name not in _EVENTS and name[:1].isupper()]
    if unknown:
        yield EntryProblem(
            f"events that this version does not know are passed over: {_listed(unknown)}", True
        )
    left = MOST_HANDLERS
    for event in HookEvent:
        groups = table.get(event.value)
        if groups is None:
            continue
        if not isinstance(groups, list):
            yield EntryProblem(f"`{event}` must be a list of groups, not {_kind(groups)}")
            continue
        for found in _groups(event, groups):
            left -= 1
            if left < 0:
                yield EntryProblem(f"only the first {MOST_HANDLERS} hooks of a file are read")
                return
            yield found


def _groups(event: HookEvent, groups: list[Json]) -> Iterator[HookEntry | EntryProblem]:
    for position, group in enumerate(groups):
        place = f"{event}[{position}]"
        match group:
            case {"hooks": list(handlers)}:
                pass
            case _:
                yield EntryProblem(f"{place} must be an object with a list `hooks`")
                continue
        for index, handler in enumerate(handlers):
            try:
                definition = _definition(event, group, handler)
            except _Wrong as problem:
                yield EntryProblem(f"{place}.hooks[{index}]: {problem}")
                continue
            yield HookEntry(position, index, definition, definition_digest(definition, handler))
            for text in _remarks(event, group, handler, definition):
                yield EntryProblem(f"{place}.hooks[{index}]{text}", True)


def _remarks(
    event: HookEvent, group: Mapping[str, Json], handler: Mapping[str, Json], definition: HookDefinition
) -> Iterator[str]:
    """Yield what a user should know of a hook that is understood and does something else than it seems to say."""
    if definition.type is not HookHandlerType.COMMAND:
        yield f" does not run: handlers of type `{handler['type']}` are not supported"
        return
    if definition.timeout < _seconds(event, handler):
        yield f": `timeout` is at most {definition.timeout} s"
    if definition.is_conditional:
        yield ": `if` is not supported; the hook runs for every call that its `matcher` names, and approves none"
    if any(character in (definition.matcher or "").replace("(?:", "(") for character in " :"):
        shown = json.dumps(definition.matcher, ensure_ascii=False)
        yield (
            f": `matcher` {shown} is held against the name of a tool alone, which has no spaces or colons; the hook"
            " sees the command in its input"
        )


def _definition(event: HookEvent, group: Mapping[str, Json], handler: Json) -> HookDefinition:
    if not isinstance(handler, Mapping):
        raise _Wrong(f"it must be an object, not {_kind(handler)}")
    matcher = None if event.has(HookRole.UNMATCHED) else _optional(group.get("matcher"), str, "matcher")
    try:
        pattern = name_pattern(matcher)
    except BadMatcher as mistake:
        raise _Wrong(f"`matcher` {json.dumps(matcher, ensure_ascii=False)}: {mistake}") from mistake
    type_name = handler.get("type")
    handler_type = _TYPES.get(type_name) if isinstance(type_name, str) else None
    if handler_type is None:
        raise _Wrong("`type` must be `command` (or `mcp_tool`, `prompt`, `agent`, which do not run)")
    command, mcp_tool = "", None
    if handler_type is HookHandlerType.COMMAND:
        command = _optional(handler.get("command"), str, "command") or ""
        if not command.strip():
            raise _Wrong("`command` is missing or empty")
        if "\0" in command:
            raise _Wrong("`command` has a null character")
    elif handler_type is HookHandlerType.MCP_TOOL:
        mcp_tool = (
            _optional(handler.get("server"), str, "server") or "",
            _optional(handler.get("tool"), str, "tool") or "",
        )
    if handler.get("args"):
        raise _Wrong("`args` is not supported; write the arguments into `command`")
    on_failure = _optional(handler.get("onFailure"), str, "onFailure")
    if on_failure == "continue":  # Claude Code's word
        on_failure = OnFailure.ALLOW
    if on_failure not in (None, *OnFailure):
        raise _Wrong("`onFailure` must be `ask`, `block` or `allow`")
    limit = _optional(handler.get("additionalContextLimit"), int, "additionalContextLimit")
    if limit is not None and limit < 0:
        raise _Wrong("`additionalContextLimit` must be at least 0")
    return HookDefinition(
        event=event,
        pattern=pattern,
        type=handler_type,
        command=command,
        mcp_tool=mcp_tool,
        timeout=min(_seconds(event, handler), LONGEST_TIMEOUT),
        is_async=_optional(handler.get("async"), bool, "async") or False,
        status_message=_optional(handler.get("statusMessage"), str, "statusMessage"),
        on_failure=None if on_failure is None else OnFailure(on_failure),
        sandbox=_optional(handler.get("sandbox"), bool, "sandbox"),
        is_conditional=bool(handler.get("if") or group.get("if")),
        additional_context_limit=limit if event.has(HookRole.ADDS_CONTEXT) else None,
    )


def _seconds(event: HookEvent, handler: Mapping[str, Json]) -> int:
    """Return the time limit that is part of the digest."""
    seconds = handler.get("timeout")
    if isinstance(seconds, float) and math.isfinite(seconds):
        seconds = math.ceil(seconds)
    seconds = _optional(seconds, int, "timeout")
    if seconds is None:
        return 1 if event.has(HookRole.SHORT) else DEFAULT_TIMEOUT
    if seconds < 0:
        raise _Wrong("`timeout` must be at least 0")
    return min(max(seconds, 1), LAST_SECONDS) if event.has(HookRole.SHORT) else max(seconds, 1)


def definition_digest(definition: HookDefinition, handler: Mapping[str, Json]) -> str:
    """Return the digest of a definition, `sha256:…`, which codex computes the same way for commands. The fields that
    only this server knows are not part of it.
    """
    written: dict[str, Json] = {"type": handler["type"]}
    if definition.type is HookHandlerType.COMMAND:
        written |= {"command": definition.command, "async": definition.is_async}
        written |= {"timeout": _seconds(definition.event, handler)}
    else:
        written |= {name: value for name, value in handler.items() if name not in ("onFailure", "sandbox")}
    if definition.status_message is not None:
        written["statusMessage"] = definition.status_message
    if definition.additional_context_limit is not None:
        written["additionalContextLimit"] = definition.additional_context_limit
    whole: dict[str, Json] = {"event_name": definition.event.snake, "hooks": [written]}
    if definition.matcher is not None:
        whole["matcher"] = definition.matcher
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


T = TypeVar("T", str, int, bool)

_NAMES: Final[Mapping[type, str]] = {str: "a text", int: "a whole number", bool: "true or false"}


def _optional(value: Json, kind: type[T], name: str) -> T | None:
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _Wrong(f"`{name}` must be {_NAMES[kind]}, not {_kind(value)}")
    return value


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def _listed(names: list[str]) -> str:
    shown = ", ".join(json.dumps(name[:40], ensure_ascii=False) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
