"""Finds proposed plans in what the model says: lines between `<proposed_plan>` and `</proposed_plan>`. Pure.

The tags stand on lines of their own. Text is handed on as soon as it cannot be the begin of a tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from protocol.records import dataclass

OPEN, CLOSE = "<proposed_plan>", "</proposed_plan>"


class PlanEdge(Enum):
    BEGINS = "begins"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class PlanText:
    text: str


@dataclass(frozen=True, slots=True)
class PlainText:
    text: str


Piece = PlainText | PlanText | PlanEdge


class PlanFinder:
    """Reads one message, piece by piece."""

    def __init__(self) -> None:
        self._inside = False
        self._line = ""
        """The current line, as long as it may become a tag."""
        self._decided = False
        """Whether the current line is no tag, so that its rest is handed on at once."""

    def feed(self, text: str) -> Iterator[Piece]:
        while text:
            line, newline, text = text.partition("\n")
            yield from self._part_of_line(line, ends=bool(newline))

    def finish(self) -> Iterator[Piece]:
        """At the end of the message, which ends a line, and a plan."""
        rest, self._line = self._line, ""
        if rest.strip() == self._tag:
            yield self._turn()
        elif rest:
            yield self._piece(rest)
        if self._inside:
            yield self._turn()

    def _part_of_line(self, part: str, *, ends: bool) -> Iterator[Piece]:
        end = "\n" if ends else ""
        if self._decided:
            if part or end:
                yield self._piece(part + end)
            self._decided = not ends
            return
        self._line += part
        line = self._line.strip()
        if ends and line == self._tag:
            self._line = ""
            yield self._turn()
        elif ends or not self._may_become_tag(line):
            line, self._line = self._line, ""
            self._decided = not ends
            yield self._piece(line + end)

    def _may_become_tag(self, line: str) -> bool:
        return len(self._line) <= 2 * len(CLOSE) and self._tag.startswith(line)

    @property
    def _tag(self) -> str:
        return CLOSE if self._inside else OPEN

    def _turn(self) -> PlanEdge:
        self._inside = not self._inside
        return PlanEdge.BEGINS if self._inside else PlanEdge.ENDS

    def _piece(self, text: str) -> Piece:
        return PlanText(text) if self._inside else PlainText(text)
