"""The events of a stream: notifications of the protocol as models, and unknown ones as they were received.

Pure. The classes are those of `app_server_protocol.v2`; this module only chooses and joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Final, TypeAlias, get_args

import msgspec
from msgspec.structs import asdict, replace
from pydantic import ValidationError

from app_server.client.plain_warnings import plain_warning
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.method_table import AnyServerNotification, ServerNotification
from app_server_protocol.outgoing import Struct
from app_server_protocol.parse import read
from app_server_protocol.v2 import items, server, settings, thread, turn
from app_server_protocol.v2.hook_runs import (
    HookCompletedNotification,
    HookOutputEntryKind,
    HookRunStatus,
    HookRunSummary,
)
from app_server_protocol.v2.turn import (
    TurnCompletedNotification,
    TurnDiffUpdatedNotification,
    TurnPlanUpdatedNotification,
    TurnStartedNotification,
)


class RawNotification(msgspec.Struct, frozen=True):
    """A notification that this version of the library does not know, with its parameters as JSON."""

    method: str
    params: Json


class DeltasDropped(msgspec.Struct, frozen=True):
    """Marker for `count` deltas that were dropped because the stream was read too slowly. `item/completed` has the
    whole item.
    """

    count: int


Delta: TypeAlias = (
    items.AgentMessageDeltaNotification
    | items.PlanDeltaNotification
    | items.ReasoningSummaryTextDeltaNotification
    | items.ReasoningTextDeltaNotification
    | items.CommandExecutionOutputDeltaNotification
)
"""A piece of an item's text."""

DELTAS = get_args(Delta)

ThreadEvent: TypeAlias = (
    Delta
    | items.ItemStartedNotification
    | items.ItemCompletedNotification
    | items.ReasoningSummaryPartAddedNotification
    | items.TerminalInteractionNotification
    | items.ServerRequestResolvedNotification
    | TurnStartedNotification
    | TurnCompletedNotification
    | TurnDiffUpdatedNotification
    | TurnPlanUpdatedNotification
    | server.ErrorNotification
    | server.WarningNotification
    | thread.ThreadStartedNotification
    | thread.ThreadStatusChangedNotification
    | thread.ThreadTokenUsageUpdatedNotification
    | thread.McpServerStatusUpdatedNotification
    | settings.ThreadSettingsUpdatedNotification
    | thread.ThreadNameUpdatedNotification
    | thread.ThreadGoalUpdatedNotification
    | thread.ThreadGoalClearedNotification
    | thread.ThreadArchivedNotification
    | thread.ThreadUnarchivedNotification
    | thread.ThreadRevertedNotification
    | thread.ThreadClosedNotification
    | thread.ThreadDeletedNotification
    | RawNotification
    | DeltasDropped
)
"""Events of a stream of a thread or of a turn."""

ServerEvent: TypeAlias = JsonSerializable | RawNotification | DeltasDropped
"""Notification that concerns no single thread: warnings, the account, skills, watched files, searches."""


TURN_ROWS: Final[Mapping[str, AnyServerNotification]] = {
    row.method: row
    for module in (items, server, settings, thread, turn)
    for row in vars(module).values()
    if isinstance(row, ServerNotification)
}
"""Notifications that threads send, by method. The shapes of all others are loaded when one of them is received."""


@cache
def _all_rows() -> Mapping[str, AnyServerNotification]:
    """Return the notifications of the whole API, by method. A program that uses the library has no lazy imports."""
    rows: Mapping[str, AnyServerNotification] = import_module(
        "app_server_protocol.v2.v2_table"
    ).TABLE.server_notifications
    return rows


@cache
def method_of(kind: type[Struct]) -> str | None:
    """Return the method of a notification, by its class."""
    of_turns = next((row.method for row in TURN_ROWS.values() if row.params is kind), None)
    return of_turns or next((row.method for row in _all_rows().values() if row.params is kind), None)


def warning_text(event: ServerEvent) -> str | None:
    """Return the warning of an event as text for a person; None if it is no warning."""
    match event:
        case thread.McpServerStatusUpdatedNotification(
            name=name, status=thread.McpServerStartupState.FAILED, error=why
        ):
            return f"the MCP server {name} did not start: {why or 'the reason is not known'}"
        case HookCompletedNotification(run=run):
            return hook_warning(run)
        case _:
            return plain_warning(event)


def hook_warning(run: HookRunSummary) -> str | None:
    """Return what a hook forbade, or why it failed, as text for a person; None if it did neither, and for a message to
    the model that it kept back, about which there is a warning.
    """
    forbade = run.status is HookRunStatus.BLOCKED and run.event_name != "userPromptSubmit"
    if not forbade and run.status is not HookRunStatus.FAILED:
        return None
    kinds = (HookOutputEntryKind.FEEDBACK, HookOutputEntryKind.ERROR)
    texts = "; ".join(entry.text for entry in run.entries if entry.kind in kinds)
    event = f"{run.event_name[:1].upper()}{run.event_name[1:]}"
    return f"the {event} hook of {run.source_path}" + (f": {texts}" if texts else " was ended")


def parse_event(method: str, params: Json) -> ServerEvent:
    """Parse a notification with a known method and shape; return others as they were received."""
    row = TURN_ROWS.get(method) or _all_rows().get(method)
    if row is None:
        return RawNotification(method, params)
    try:
        event: JsonSerializable = read(row.params, params)
    except ValidationError:
        return RawNotification(method, params)
    return event


def thread_of(params: Json) -> str | None:
    """Return the id of the thread that a notification or a request concerns."""
    match params:
        case {"threadId": str(id)} | {"thread": {"id": str(id)}}:
            return id
        case _:
            return None


def turn_of(event: object) -> str | None:
    """Return the id of the turn to which an event belongs. None if it belongs to none."""
    match event:
        case TurnStartedNotification(turn=turn) | TurnCompletedNotification(turn=turn):
            return turn.id
        case RawNotification(params={"turnId": str(id)}):
            return id
        case Struct():
            named = getattr(event, "turn_id", None)
            return named if isinstance(named, str) else None
        case _:
            return None


def continues(first: Delta, second: Delta) -> bool:
    """Return whether the second delta is the next piece of the same text."""
    return type(first) is type(second) and _place(first) == _place(second)


def joined(first: Delta, pieces: list[str]) -> Delta:
    """Join deltas of the same text."""
    return first if len(pieces) == 1 else replace(first, delta="".join(pieces))


def _place(delta: Delta) -> tuple[object, ...]:
    return tuple(value for name, value in asdict(delta).items() if name != "delta")
