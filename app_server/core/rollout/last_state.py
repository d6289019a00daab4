"""What a stored conversation last worked with and for: the settings of its last turn, its goal and its count of tokens,
the first two also from the end of the file alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from app_server.core.rollout.disk import opened
from app_server.core.rollout.lines import MOST_BYTES, lines_from_the_end
from app_server.core.rollout.record import StoredRecord, read_record
from app_server.core.rollout.stored_events import GOAL_CLEARED, GOAL_UPDATED
from protocol.engine.events import Goal, GoalStatus
from protocol.events.turn import TokenUsageInfo
from protocol.reading import read
from protocol.rollout import TurnContextItem
from protocol.structs import Json

GOAL_KINDS: Final = (GOAL_UPDATED, GOAL_CLEARED)
_GOAL_MARK: Final = b'"goal_'


def last_goal(path: Path) -> Goal | None:
    """Read the goal; None where there is none, and where the line is damaged. Raises RolloutUnreadable."""
    with opened(path) as fd:
        records = _records(fd, _GOAL_MARK)
        found = next((each for each in records if each.name in GOAL_KINDS), None)
        return goal_in(None if found is None else found.value())


def goal_in(payload: Json) -> Goal | None:
    """Return the goal that the payload of such a line says."""
    match payload:
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


def usage_in(counts: Sequence[StoredRecord]) -> TokenUsageInfo | None:
    """Return the last of these counts of tokens that says how many there are."""
    for record in reversed(counts):
        info = (record.value() or {}).get("info")
        if info is not None:
            try:
                return read(TokenUsageInfo, info)
            except ValidationError:
                continue
    return None


def last_turn_context(path: Path) -> TurnContextItem | None:
    """Read the settings of the last turn; None where no turn was stored. Raises RolloutUnreadable."""
    with opened(path) as fd:
        for value in turn_contexts(fd):
            try:
                return TurnContextItem.model_validate(value)
            except ValidationError:
                continue
        return None


def turn_contexts(fd: int, most: int = MOST_BYTES) -> Iterator[dict[str, Json]]:
    """Yield the settings of turns, the last first, as the end of the file has them."""
    for record in _records(fd, b'"turn_context"', most):
        if record.kind == "turn_context" and (value := record.value()) is not None:
            yield value


def _records(fd: int, mark: bytes, most: int = MOST_BYTES) -> Iterator[StoredRecord]:
    found = (read_record(line) for line in lines_from_the_end(fd, mark, most))
    return (record for record in found if record is not None)
