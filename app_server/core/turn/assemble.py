"""A reply of the model while it streams: model events become items with deltas. Does no I/O.

One item is written at a time. It starts when the provider adds it, or with its first delta, or else when it is done;
it keeps the id that it started with.
"""

from __future__ import annotations

from collections.abc import Callable

from app_server.core.model import prompt
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.items import shown_item
from app_server.core.turn.plan_message import PlanMessage
from protocol.engine.events import (
    AgentMessageDelta,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    ReasoningTextDelta,
)
from protocol.engine.items import AgentMessage, Item, Reasoning, WebSearch
from protocol.responses import ResponseItem
from protocol.structs import replace

Visible = (
    prompt.OutputItemAdded
    | prompt.OutputItemDone
    | prompt.OutputTextDelta
    | prompt.ReasoningSummaryTextDelta
    | prompt.ReasoningSummaryPartAdded
    | prompt.ReasoningContentDelta
)


class ReplyAssembler:
    """For one attempt; `emitter` None: nothing is shown."""

    def __init__(
        self,
        emitter: TurnEmitter | None,
        new_id: Callable[[], str],
        *,
        raw_reasoning: bool,
        show_messages: bool = True,
        plans: bool = False,
    ) -> None:
        """`plans`: proposed plans in messages are items of their own."""
        self._emitter, self._new_id = emitter, new_id
        self._raw_reasoning, self._show_messages = raw_reasoning, show_messages
        self._id: str | None = None
        """The item that is being written."""
        self._pieces: list[str] = []
        """Its deltas, for an item that is cut."""
        self._raw_pieces: list[str] = []
        """Those of raw reasoning."""
        self._plans = plans
        self._message: PlanMessage | None = None
        """The message that is being written, where plans are looked for."""

    def text_delta(self, delta: str) -> None:
        """Show a piece of text: the hot path, one event a piece."""
        if self._emitter is None or not self._show_messages:
            return
        if self._plans:
            self._plan_message().text_delta(delta)
            return
        if self._id is None:
            self._begin(AgentMessage(self._new_id(), ()), announced=False)
        assert self._id is not None
        self._pieces.append(delta)
        self._emitter.emit(AgentMessageDelta(self._id, delta))

    def take(self, event: Visible) -> None:
        if self._emitter is None:
            return
        match event:
            case prompt.OutputTextDelta():
                self.text_delta(event.delta)
            case prompt.OutputItemAdded():
                item = self._shown(event.item, self._new_id())
                own_id = _id_of(event.item) is None
                if self._plans and isinstance(item, AgentMessage):
                    self._message = PlanMessage(self._emitter, item, announced=True, own_id=own_id)
                elif item is not None:
                    self._begin(item, own_id=own_id)
            case prompt.OutputItemDone():
                self._done(event.item)
            case prompt.ReasoningSummaryTextDelta():
                id = self._reasoning()
                self._pieces.append(event.delta)
                self._emitter.emit(ReasoningSummaryDelta(id, event.summary_index, event.delta))
            case prompt.ReasoningSummaryPartAdded():
                self._emitter.emit(ReasoningSummaryPart(self._reasoning(), event.summary_index))
            case prompt.ReasoningContentDelta():
                id, index = self._reasoning(), event.content_index
                self._raw_pieces.append(event.delta)
                self._emitter.emit(ReasoningTextDelta(id, index, event.delta, self._raw_reasoning))

    def _plan_message(self, item: AgentMessage | None = None) -> PlanMessage:
        """Return the message that is being written, begun where the provider announced none."""
        assert self._emitter is not None
        if self._message is None:
            empty = AgentMessage(self._new_id(), ()) if item is None else replace(item, content=())
            self._message = PlanMessage(self._emitter, empty, announced=False, own_id=False)
        return self._message

    def _reasoning(self) -> str:
        """Return the id of the item that is being written, begun where the provider announced none."""
        if self._id is None:
            self._begin(Reasoning(self._new_id(), (), show_content=self._raw_reasoning), announced=False)
        assert self._id is not None
        return self._id

    def _begin(self, item: Item, *, announced: bool = True, own_id: bool = False) -> None:
        assert self._emitter is not None
        self._id, self._pieces, self._raw_pieces = item.id, [], []
        pieces, raw = self._pieces, self._raw_pieces
        self._emitter.start(
            item, announced=announced, own_id=own_id, partial=lambda: _partial(item, pieces, raw)
        )

    def _done(self, response_item: ResponseItem) -> None:
        assert self._emitter is not None
        item = self._shown(response_item, self._id or self._new_id())
        if item is None:
            return
        if self._plans and isinstance(item, AgentMessage):
            self._plan_message(item).complete(item)
            self._message = None
            return
        if self._id is None:
            self._begin(item, announced=False)
        assert self._id is not None
        self._emitter.complete(replace(item, id=self._id))
        self._id = None

    def _shown(
        self, response_item: ResponseItem, fallback_id: str
    ) -> AgentMessage | Reasoning | WebSearch | None:
        item = shown_item(response_item, fallback_id, show_reasoning=self._raw_reasoning)
        return None if isinstance(item, AgentMessage) and not self._show_messages else item


def _id_of(item: ResponseItem) -> str | None:
    return getattr(item, "id", None)


def _partial(item: Item, pieces: list[str], raw: list[str]) -> Item:
    text, thought = "".join(pieces), "".join(raw)
    match item:
        case AgentMessage() if text:
            return replace(item, content=(text,))
        case Reasoning():
            return replace(item, summary=(text,) if text else (), content=(thought,) if thought else ())
        case _:
            return item
