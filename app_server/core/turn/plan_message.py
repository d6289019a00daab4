"""A message of the model in plan mode as items: what it says, and each plan that it proposes as an item of its own.

What it says begins an item with its first letter, so that a message which is nothing but a plan has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.proposed_plan import Piece, PlainText, PlanEdge, PlanFinder, PlanText
from protocol.engine.events import AgentMessageDelta
from protocol.engine.items import AgentMessage, Plan


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
        """The plan that goes on: its id and text."""

    def text_delta(self, delta: str) -> None:
        self._streamed = True
        self._take(self._finder.feed(delta), shown=True)

    def complete(self, message: AgentMessage) -> None:
        """The whole message; what was not streamed is shown now."""
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
                case PlainText(text):
                    self._text(text, shown=shown)
                case PlanEdge.BEGINS:
                    self._end_plan()
                    self._begin_plan()
                case PlanText(text):
                    assert self._plan is not None
                    id, texts = self._plan
                    texts.append(text)
                    if shown:
                        self._emitter.emit(AgentMessageDelta(id, text))
                case PlanEdge.ENDS:
                    pass  # its item ends with the message, or where another one begins

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
