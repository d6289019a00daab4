"""What commands print while they run, and all that the last one printed. In bounds: the beginning of much is gone."""

from __future__ import annotations

from typing import Final

from app_server.chat.question_rows import guttered
from protocol.v2.items import CommandExecutionThreadItem

MOST_KEPT: Final = 1 << 20
"""Characters of each command."""

SHOWN_ROWS: Final = 5
"""Of each command that runs."""


class CommandOutputs:
    def __init__(self) -> None:
        self._running: dict[str, str] = {}
        """What each command has printed so far, by its item."""
        self._lines: dict[str, str] = {}
        """The command line of each."""
        self._last = ""
        """The last command that ended, with its output."""

    def started(self, item: CommandExecutionThreadItem) -> None:
        self._running[item.id], self._lines[item.id] = "", f"$ {item.command}\n"

    def printed(self, item_id: str, text: str) -> None:
        """Take a piece of output; what is no longer waited for is dropped."""
        if item_id in self._running:
            so_far = self._running[item_id] + text
            self._running[item_id] = so_far if len(so_far) <= 2 * MOST_KEPT else so_far[-MOST_KEPT:]

    def ended(self, item: CommandExecutionThreadItem) -> None:
        printed = item.aggregated_output or self._running.get(item.id, "")
        self._last = f"$ {item.command}\n{printed[-MOST_KEPT:]}"
        self._running.pop(item.id, None)

    def turn_ended(self) -> None:
        """Forget commands whose end was not told."""
        self._running.clear()
        self._lines.clear()

    def rows(self, columns: int) -> list[str]:
        """Return the last rows of each command that runs."""
        ends = [text[-2 * columns * SHOWN_ROWS :] for text in self._running.values()]
        return [row for end in ends for row in guttered(end, columns)[-SHOWN_ROWS:]]

    def whole(self) -> str:
        """Return all that the commands that run have printed, or else the last one."""
        return "\n".join(self._lines[id] + text for id, text in self._running.items()) or self._last
