"""The settings that a stored conversation last worked with: of its last turn, read from the end of the file. Pure but
for the reading.
"""

from __future__ import annotations

import os
from pathlib import Path

from app_server.core.rollout.disk import describe, open_for_reading
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.rollout_lines import lines_from_the_end
from app_server.core.rollout.stored_lines import parse_line
from protocol.rollout import TurnContextItem

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
