"""Converts data that newer versions of codex store in another form than this server: the settings of turns, goals, the
tools of a client, the names of grouped tools. Pure. Values in the form of this server stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from app_server.engine.storage.encode import GOAL_CLEARED, GOAL_UPDATED
from app_server.engine.storage.record import StoredRecord, text_of
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import Goal, GoalStatus
from app_server_protocol.policy import AskForApproval, QuestionKinds
from app_server_protocol.values import replace

THREAD_GOAL_UPDATED, THREAD_GOAL_CLEARED = "thread_goal_updated", "thread_goal_cleared"
GOAL_KINDS: Final = (GOAL_UPDATED, GOAL_CLEARED, THREAD_GOAL_UPDATED, THREAD_GOAL_CLEARED)
_GOAL_FIELDS: Final = {
    "objective": "objective",
    "tokenBudget": "token_budget",
    "tokensUsed": "tokens_used",
    "timeUsedSeconds": "seconds_used",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
}
_GOAL_STATES: Final = {
    "active": GoalStatus.PAUSED,
    "paused": GoalStatus.PAUSED,
    "blocked": GoalStatus.BLOCKED,
    "usageLimited": GoalStatus.USAGE_LIMITED,
    "budgetLimited": GoalStatus.BUDGET_LIMITED,
    "complete": GoalStatus.COMPLETE,
}
"""Our state of a goal, by the state in codex. A goal that codex was working for is paused here: codex stores in a
database of its own whether the goal was cleared later.
"""
_GROUP_MARK: Final = b'"namespace":'


def goal_in(payload: Json) -> Goal | None:
    """Return the goal in the payload of a line about goals; None if it has none, or if it is damaged."""
    match payload:
        case {"type": "thread_goal_updated", "goal": dict() as goal}:
            return _goal_of_codex(goal)
        case {"goal": dict() as goal} if goal.keys() >= {*Goal.__struct_fields__}:
            return _goal(goal)
        case _:
            return None


def _goal_of_codex(goal: Mapping[str, Json]) -> Goal | None:
    values = {ours: goal[theirs] for theirs, ours in _GOAL_FIELDS.items() if goal.get(theirs) is not None}
    found = _goal(values)
    status = _GOAL_STATES.get(str(goal.get("status")), GoalStatus.PAUSED)
    return None if found is None else replace(found, status=status)


def _goal(values: Mapping[str, Json]) -> Goal | None:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(values, Goal, strict=False)
    return None


def settings_in_our_words(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings of a turn in the form in which this server stores them."""
    found = dict(value)
    active = found.get("active_permission_profile")
    if active is not None and not (isinstance(active, dict) and text_of(active, "id")):
        found["active_permission_profile"] = None
    match found.get("approval_policy"):
        case {"granular": dict() as kinds}:
            known = {name: kinds[name] for name in QuestionKinds.__struct_fields__ if name in kinds}
            found |= {"approval_policy": AskForApproval.ON_REQUEST.value, "granular": known}
        case _:
            pass
    match found.get("collaboration_mode"):
        case {"mode": "plan" as mode, "settings": dict() as settings}:
            found |= {"mode": mode, "mode_instructions": text_of(settings, "developer_instructions")}
        case _:
            pass
    return found


def meta_in_our_words(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return the metadata in the first line of a file, with the client's tools in the form in which this server stores
    them.
    """
    found, specs = dict(value), value.get("dynamic_tools")
    if "client_tools" not in found and isinstance(specs, list):
        found["client_tools"] = [tool for spec in specs for tool in _tools(spec)]
    return found


def _tools(spec: Json) -> Iterator[dict[str, Json]]:
    """Yield the tools of an entry; none if the entry is damaged."""
    match spec:
        case {"type": "namespace", "name": str(group), "tools": list(tools)}:
            for tool in tools:
                yield from _tool(tool, group)
        case dict():
            yield from _tool(spec, text_of(spec, "namespace"))
        case _:
            pass


def _tool(spec: Json, group: str | None) -> Iterator[dict[str, Json]]:
    match spec:
        case {"name": str(name), "description": str(description), "inputSchema": dict() as schema}:
            named = {"name": name, "description": description, "input_schema": schema}
            yield named if group is None else {**named, "namespace": group}
        case _:
            pass


def with_whole_name(record: StoredRecord) -> StoredRecord:
    """Return a tool call with the name by which this server offers the tool to the model. Codex puts the tools of a
    server into a group, and stores the group beside the name.
    """
    if _GROUP_MARK not in record.payload:
        return record
    value = record.value() or {}
    group, name = text_of(value, "namespace"), text_of(value, "name")
    if group is None or name is None:
        return record
    return StoredRecord.of(record.kind, {**value, "name": f"{group}__{name}"}, record.ordinal)
