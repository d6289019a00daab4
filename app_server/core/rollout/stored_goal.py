"""The goal of a stored conversation: that of the last line about one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from app_server.core.rollout.disk import open_for_reading
from app_server.core.rollout.objects import parse_object
from app_server.core.rollout.rollout_lines import cut_line, lines_from_the_end
from app_server.core.rollout.stored_events import GOAL_CLEARED, GOAL_UPDATED
from protocol.base import Json
from protocol.engine.events import Goal, GoalStatus

GOAL_LINES = (GOAL_UPDATED.encode(), GOAL_CLEARED.encode())


def last_goal(path: Path) -> Goal | None:
    """None where there is none, and where the line is damaged. Raises OSError."""
    fd = open_for_reading(path)
    try:
        for line in lines_from_the_end(fd):
            kind, payload, name = cut_line(line)
            if kind == b"event_msg" and name in GOAL_LINES:
                return goal_of(payload)
        return None
    finally:
        os.close(fd)


def goal_of(payload: bytes | None) -> Goal | None:
    """The goal that the payload of such a line says."""
    found = parse_object(payload) if payload else None
    match found:
        case {"goal": Mapping() as goal}:
            return _goal(goal)
        case _:
            return None


def _goal(value: Mapping[str, Json]) -> Goal | None:
    try:
        budget = value["token_budget"]
        return Goal(
            objective=str(value["objective"]),
            status=GoalStatus(value["status"]),
            token_budget=None if budget is None else int(budget),
            tokens_used=int(value["tokens_used"]),
            seconds_used=float(value["seconds_used"]),
            created_at=int(value["created_at"]),
            updated_at=int(value["updated_at"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
