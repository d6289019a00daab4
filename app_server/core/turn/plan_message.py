"""A message of the model in plan mode as items: what it says, and each plan that it proposes as an item of its own.
Pure.

A plan stands between `<proposed_plan>` and `</proposed_plan>`, tags on lines of their own. Text is handed on as soon as
it cannot be the begin of a tag. What the message says begins an item with its first letter, so that a message which is
nothing but a plan has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from app_server.core.turn.emitter import TurnEmitter
from protocol.engine.events import AgentMessageDelta
from protocol.engine.items import AgentMessage, Plan
from protocol.structs import replace

OPEN, CLOSE = "<proposed_plan>", "</proposed_plan>"


class PlanEdge(Enum):
    BEGINS = "begins"
    ENDS = "ends"


Piece = str | PlanEdge
"""Text, or where a plan begins or ends in it."""


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
        """End the last line and a plan that is open, at the end of the message."""
        rest, self._line = self._line, ""
        if rest.strip() == self._tag:
            yield self._turn()
        elif rest:
            yield rest
        if self._inside:
            yield self._turn()

    def _part_of_line(self, part: str, *, ends: bool) -> Iterator[Piece]:
        end = "\n" if ends else ""
        if self._decided:
            if part or end:
                yield part + end
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
            yield line + end

    def _may_become_tag(self, line: str) -> bool:
        return len(self._line) <= 2 * len(CLOSE) and self._tag.startswith(line)

    @property
    def _tag(self) -> str:
        return CLOSE if self._inside else OPEN

    def _turn(self) -> PlanEdge:
        self._inside = not self._inside
        return PlanEdge.BEGINS if self._inside else PlanEdge.ENDS


class PlanMessage:
    """One message, from its first piece to its end."""

    def __init__(self, emitter: TurnEmitter, message: AgentMessage, *, announced: bool, own_id: bool) -> None:
        self._emitter, self._message = emitter, message
        self._announced, self._own_id = announced, own_id
        self._finder = PlanFinder()
        self._streamed = False
        self._waiting = ""
        """Blank text before the first letter."""
        self._deltas: list[str] | None = None
        """The text so far; None until the item has begun."""
        self._plan: tuple[str, list[str]] | None = None
        """The plan that goes on: its id and text. Its item ends with the message, or where another one begins."""
        self._in_plan = False

    def text_delta(self, delta: str) -> None:
        self._streamed = True
        self._take(self._finder.feed(delta), shown=True)

    def complete(self, message: AgentMessage) -> None:
        """Take the whole message; what was not streamed is shown now."""
        if not self._streamed:
            self._take(self._finder.feed(message.text), shown=False)
        self._take(self._finder.finish(), shown=self._streamed)
        self._end_plan()
        if self._deltas is not None:
            text = "".join(self._deltas)
            self._emitter.complete(replace(message, id=self._message.id, content=(text,)))

    def _take(self, pieces: Iterable[Piece], *, shown: bool) -> None:
        for piece in pieces:
            match piece:
                case PlanEdge():
                    self._in_plan = piece is PlanEdge.BEGINS
                    if self._in_plan:
                        self._end_plan()
                        self._begin_plan()
                case text if self._in_plan and self._plan is not None:
                    id, texts = self._plan
                    texts.append(text)
                    if shown:
                        self._emitter.emit(AgentMessageDelta(id, text))
                case text:
                    self._text(text, shown=shown)

    def _text(self, text: str, *, shown: bool) -> None:
        if self._deltas is None:
            self._waiting += text
            if not self._waiting.strip():
                return
            text, self._waiting = self._waiting, ""
            deltas = self._deltas = []
            message = self._message

            def partial() -> AgentMessage:
                return replace(message, content=("".join(deltas),))

            self._emitter.start(message, announced=self._announced, own_id=self._own_id, partial=partial)
        self._deltas.append(text)
        if shown:
            self._emitter.emit(AgentMessageDelta(self._message.id, text))

    def _begin_plan(self) -> None:
        id, texts = self._emitter.new_plan_id(), list[str]()
        self._plan = (id, texts)
        self._emitter.start(Plan(id, ""), partial=lambda: Plan(id, "".join(texts)))

    def _end_plan(self) -> None:
        if self._plan is not None:
            id, texts = self._plan
            self._plan = None
            self._emitter.complete(Plan(id, "".join(texts)))
