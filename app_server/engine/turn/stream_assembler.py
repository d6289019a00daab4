"""Assembles a reply of the model while it streams: model events become items with deltas. Does no I/O.

One message, one thought and one search are written at a time, usually one after the other. Each starts when the
provider adds it, or with its first delta, or else when it is done; it keeps the id that it started with.

In plan mode each plan that a message proposes is an item of its own. A plan stands between `<proposed_plan>` and
`</proposed_plan>`, tags on lines of their own. Text is emitted as soon as it cannot be the start of a tag. The item of
the message begins with the first character of its text that is not blank, so a message with nothing but a plan has no
item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from app_server.engine.model import prompt
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.turn_items import shown_item
from app_server_protocol.engine.events import ReasoningSummaryPart
from app_server_protocol.engine.item_text import ItemText
from app_server_protocol.engine.items import AgentMessage, Item, Plan, Reasoning, WebSearch
from app_server_protocol.responses import ResponseItem
from app_server_protocol.values import replace

Visible = (
    prompt.OutputItemAdded
    | prompt.OutputItemDone
    | prompt.OutputTextDelta
    | prompt.ReasoningSummaryTextDelta
    | prompt.ReasoningSummaryPartAdded
    | prompt.ReasoningContentDelta
)


class ReplyAssembler:
    """Assembles the reply of one attempt. `emitter`: None if nothing is shown."""

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
        self._ids: dict[type[Item], str] = {}
        """Ids of the items that are being written, by their kind."""
        self._plans = plans
        self._message: PlanMessage | None = None
        """The message that is being written; None if there is none, or if plans are not looked for."""

    def text_delta(self, event: prompt.OutputTextDelta) -> None:
        """Emit that the text of the message has grown. This is the hot path: one event per piece."""
        if self._emitter is None or not self._show_messages:
            return
        if self._plans:
            self._plan_message().text_delta(event)
            return
        id = self._ids.get(AgentMessage)
        if id is None:
            id = self._begin(AgentMessage(self._new_id(), ()), announced=False)
        self._emitter.grow(id, event.text, event.end)

    def take(self, event: Visible) -> None:
        if self._emitter is None:
            return
        match event:
            case prompt.OutputTextDelta():
                self.text_delta(event)
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
                self._emitter.grow(self._reasoning(), event.text, event.end, (True, event.summary_index))
            case prompt.ReasoningSummaryPartAdded():
                self._emitter.emit(ReasoningSummaryPart(self._reasoning(), event.summary_index))
            case prompt.ReasoningContentDelta():
                self._emitter.grow(self._reasoning(), event.text, event.end, (False, event.content_index))

    def _plan_message(self, item: AgentMessage | None = None) -> PlanMessage:
        """Return the message that is being written. Begin it if the provider announced none."""
        assert self._emitter is not None
        if self._message is None:
            empty = AgentMessage(self._new_id(), ()) if item is None else replace(item, content=())
            self._message = PlanMessage(self._emitter, empty, announced=False, own_id=False)
        return self._message

    def _reasoning(self) -> str:
        """Return the id of the reasoning item that is being written. Begin it if the provider announced none."""
        id = self._ids.get(Reasoning)
        if id is None:
            empty = Reasoning(self._new_id(), (), show_content=self._raw_reasoning)
            id = self._begin(empty, announced=False)
        return id

    def _begin(self, item: Item, *, announced: bool = True, own_id: bool = False) -> str:
        """Begin an item, and return its id."""
        assert self._emitter is not None
        self._ids[type(item)] = item.id
        self._emitter.start(item, announced=announced, own_id=own_id)
        return item.id

    def _done(self, response_item: ResponseItem) -> None:
        assert self._emitter is not None
        item = self._shown(response_item, "")
        if item is None:
            return
        id = self._ids.pop(type(item), None)
        if id is None and not item.id:
            item = replace(item, id=self._new_id())
        if self._plans and isinstance(item, AgentMessage):
            self._plan_message(item).complete(item)
            self._message = None
            return
        if id is None:
            self._emitter.start(item, announced=False)
        self._emitter.complete(item if id is None else replace(item, id=id))

    def _shown(
        self, response_item: ResponseItem, fallback_id: str
    ) -> AgentMessage | Reasoning | WebSearch | None:
        item = shown_item(response_item, fallback_id, show_reasoning=self._raw_reasoning)
        return None if isinstance(item, AgentMessage) and not self._show_messages else item


def _id_of(item: ResponseItem) -> str | None:
    return getattr(item, "id", None)


OPEN, CLOSE = "<proposed_plan>", "</proposed_plan>"


class PlanEdge(Enum):
    BEGINS = "begins"
    ENDS = "ends"


Piece = str | PlanEdge
"""A piece of text, or the start or end of a plan within it."""


class PlanFinder:
    """Finds the plans in one message, which is fed piece by piece."""

    def __init__(self) -> None:
        self._inside = False
        self._line = ""
        """The current line, as long as it may still become a tag."""
        self._decided = False
        """Whether the current line is known to be no tag, so that its rest is emitted at once."""

    def feed(self, text: str) -> Iterator[Piece]:
        while text:
            line, newline, text = text.partition("\n")
            yield from self._part_of_line(line, ends=bool(newline))

    def finish(self) -> Iterator[Piece]:
        """End the last line and an open plan, at the end of the message."""
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
    """One message, from its first piece to its end. What its items show are texts of their own."""

    def __init__(self, emitter: TurnEmitter, message: AgentMessage, *, announced: bool, own_id: bool) -> None:
        self._emitter, self._message = emitter, message
        self._announced, self._own_id = announced, own_id
        self._finder = PlanFinder()
        self._read = 0
        """Offset up to which the message was read; 0 if it does not come in deltas, and is shown at its end."""
        self._said = ItemText()
        """The message without its plans."""
        self._has_begun = False
        """Whether the item of the message has begun."""
        self._plan: str | None = None
        """Id of the open plan; None if none is open. Its item ends with the message, or when another plan begins."""
        self._planned = ItemText()
        """Text of the open plan."""
        self._in_plan = False

    def text_delta(self, event: prompt.OutputTextDelta) -> None:
        start, self._read = self._read, event.end
        for piece in event.text.pieces[start : event.end]:
            self._take(self._finder.feed(piece))

    def complete(self, message: AgentMessage) -> None:
        """Handle the complete message; the part that was not streamed is emitted now."""
        if not self._read:
            self._take(self._finder.feed(message.text))
        self._take(self._finder.finish())
        self._end_plan()
        if self._has_begun:
            self._emitter.complete(replace(message, id=self._message.id, content=(self._said.text(),)))

    def _take(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            match piece:
                case PlanEdge():
                    self._in_plan = piece is PlanEdge.BEGINS
                    if self._in_plan:
                        self._end_plan()
                        self._begin_plan()
                case text if self._in_plan and self._plan is not None:
                    end = self._planned.add(text)
                    if self._read:
                        self._emitter.grow(self._plan, self._planned, end)
                case text:
                    self._say(text)

    def _say(self, text: str) -> None:
        end = self._said.add(text)
        if not self._has_begun:
            if not text.strip():
                return
            self._has_begun = True
            self._emitter.start(self._message, announced=self._announced, own_id=self._own_id)
        if self._read:
            self._emitter.grow(self._message.id, self._said, end)

    def _begin_plan(self) -> None:
        self._plan, self._planned = self._emitter.new_plan_id(), ItemText()
        self._emitter.start(Plan(self._plan, ""))

    def _end_plan(self) -> None:
        if self._plan is not None:
            self._emitter.complete(Plan(self._plan, self._planned.text()))
            self._plan = None
