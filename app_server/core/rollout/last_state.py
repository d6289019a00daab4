"""What a stored conversation last worked with and for: the settings of its last turn and its goal, read from the end of
the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from app_server.core.rollout.disk import RolloutUnreadable, describe, open_for_reading
from app_server.core.rollout.records import parse_line
from app_server.core.rollout.rollout_lines import cut_line, lines_from_the_end, parse_object
from app_server.core.rollout.stored_events import GOAL_CLEARED, GOAL_UPDATED
from protocol.base import Json
from protocol.engine.events import Goal, GoalStatus
from protocol.rollout import TurnContextItem

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


MARK = b'"type":"turn_context"'


def last_turn_context(path: Path) -> TurnContextItem | None:
    """None where no turn was stored. Raises RolloutUnreadable."""
    try:
        fd = open_for_reading(path)
        try:
            for line in lines_from_the_end(fd):
                if (
                    MARK in line
                    and (stored := parse_line(line))
                    and isinstance(stored.payload, TurnContextItem)
                ):
                    return stored.payload
            return None
        finally:
            os.close(fd)
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None
