"""Turns the blocks of one Messages API answer into items, in their order. Pure.

Blocks are shown one after the other, even if a server interleaves them. A call that stands last is held until the end
of the answer: a call that the provider cut off is not run.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from app_server.engine.model import event_json
from app_server.engine.model.messages_writer import REDACTED, SIGNATURE
from app_server.engine.model.prompt import (
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDelta,
)
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.engine.item_text import ItemText
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import (
    FunctionCall,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    SummaryText,
)
from app_server_protocol.values import replace

log = logging.getLogger(__name__)

T = TypeVar("T", MessageItem, ReasoningResponseItem, FunctionCall)

DELTAS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""Kinds of pieces, with the kind of their block and the name of the field that has the text."""


class ReadBlock(Struct):
    """A block, as far as it has arrived."""

    kind: str
    written: ItemText = msgspec.field(default_factory=ItemText)
    """A text, a thought, or the arguments of a call."""
    id: str = ""
    name: str = ""
    input: Json = None
    """Arguments that came with the start of a call."""
    kept: dict[str, Json] = msgspec.field(default_factory=dict)
    """Data that the provider expects back."""
    is_whole: bool = False
    is_begun: bool = False
    """Whether the start of its item was emitted."""


class AnswerBlocks:
    """The blocks of one answer as they arrive, and their events."""

    def __init__(self, origin: ItemOrigin) -> None:
        self.origin = origin
        """Origin of the answer; the provider's id is added once it has arrived."""
        self._size = event_json.ReplySize()
        self._blocks: dict[int, ReadBlock] = {}
        self._waiting: deque[ReadBlock] = deque()
        """Blocks that are not completely shown yet, in their order."""
        self._calls = 0
        self._ignored = False

    def stop(self, index: int, out: list[ModelEvent]) -> None:
        """End a block."""
        if (block := self._blocks.get(index)) is not None:
            block.is_whole = True
            self._advance(out)

    def end(self, out: list[ModelEvent], *, is_cut: bool, drops_call: bool = False) -> bool:
        """End all blocks, and return whether one of them is a call that was cut off. `is_cut`: the provider cut the
        answer off, so its last call is not run. `drops_call`: the call is not shown, either.
        """
        ends_in_call = bool(self._waiting) and self._waiting[-1].kind == "tool_use"
        cut = self._waiting.pop() if is_cut and ends_in_call else None
        for block in self._waiting:
            block.is_whole = True
        self._advance(out, at_end=True)
        if cut is None or drops_call or (item := self._item(cut)) is None:
            return False
        out.append(OutputItemDone(item, is_cut=True))
        return True

    def start(self, index: int, raw: dict[str, Json], out: list[ModelEvent]) -> None:
        """Begin a block, which may already have content."""
        kind = event_json.text_of(raw.get("type")) or ""
        if kind not in ("text", "thinking", "redacted_thinking", "tool_use"):
            if not self._ignored:
                self._ignored = True
                log.info("the answer has a block of kind %r, which is not used", kind[:100])
            return
        block = self._add(index, kind)
        match kind:
            case "redacted_thinking":
                block.kept[REDACTED] = event_json.text_of(raw.get("data")) or ""
                self._size.piece(block.kept[REDACTED])
            case "tool_use":
                block.id = event_json.text_of(raw.get("id")) or ""
                block.name = event_json.text_of(raw.get("name")) or ""
                block.input = raw.get("input")
            case _:
                self._sign(block, raw.get("signature"))
                self._piece(block, event_json.text_of(raw.get(kind)), out)
        self._advance(out)

    def _add(self, index: int, kind: str) -> ReadBlock:
        block = self._blocks[index] = ReadBlock(kind)
        self._size.item(event_json.PIECE_OVERHEAD)
        self._waiting.append(block)
        return block

    def delta(self, index: int, delta: dict[str, Json], out: list[ModelEvent]) -> None:
        """Add a piece of a block; the start of the block may be missing."""
        block = self._blocks.get(index)
        kind = delta.get("type")
        if kind == "signature_delta":
            if block is not None:
                self._sign(block, delta.get("signature"), adds=True)
            return
        if not isinstance(kind, str) or (known := DELTAS.get(kind)) is None:
            return
        if block is None:
            if known[0] == "tool_use":
                return
            block = self._add(index, known[0])
        if block.kind == known[0]:
            self._piece(block, event_json.text_of(delta.get(known[1])), out)

    def _sign(self, block: ReadBlock, signature: Json, *, adds: bool = False) -> None:
        if isinstance(signature, str) and block.kind == "thinking":
            self._size.piece(signature)
            before = block.kept.get(SIGNATURE) if adds else None
            block.kept[SIGNATURE] = f"{before or ''}{signature}"

    def _piece(self, block: ReadBlock, text: str | None, out: list[ModelEvent]) -> None:
        if text is None or block.is_whole:
            return
        self._size.piece(text)
        end = block.written.add(text)
        if self._waiting[0] is block:
            self._show(block, end, out)

    def _show(self, block: ReadBlock, end: int, out: list[ModelEvent]) -> None:
        """Emit how far the text of the first waiting block has come."""
        if block.kind == "thinking":
            if not block.is_begun:
                block.is_begun = True
                out.append(OutputItemAdded(ReasoningResponseItem()))
                out.append(ReasoningSummaryPartAdded(0))
            out.append(ReasoningSummaryTextDelta(block.written, end, 0))
        elif block.kind == "text":
            if not block.is_begun:
                block.is_begun = True
                out.append(OutputItemAdded(MessageItem(role="assistant", content=())))
            out.append(OutputTextDelta(block.written, end))

    def _advance(self, out: list[ModelEvent], *, at_end: bool = False) -> None:
        """Emit the items of complete blocks that have no incomplete one before them."""
        while self._waiting:
            block = self._waiting[0]
            is_last_call = block.kind == "tool_use" and len(self._waiting) == 1
            if not block.is_whole or (is_last_call and not at_end):
                return
            self._waiting.popleft()
            if (item := self._item(block)) is not None:
                out.append(OutputItemDone(item))
            following = self._waiting[0] if self._waiting else None
            if following is not None and (end := len(following.written.pieces)):
                self._show(following, end, out)

    def _item(self, block: ReadBlock) -> MessageItem | ReasoningResponseItem | FunctionCall | None:
        """Return the item of a block; None for an empty text."""
        text = block.written.text()
        match block.kind:
            case "tool_use":
                self._calls += 1
                given = json_bytes(block.input).decode() if isinstance(block.input, dict) else "{}"
                call_id = block.id or f"call_{self.origin.answer}{self._calls}"
                return self._from(FunctionCall(name=block.name, arguments=text or given, call_id=call_id))
            case "text":
                if not text:
                    return None
                return self._from(MessageItem(role="assistant", content=(OutputText(text=text),)))
            case _:
                summary = (SummaryText(text=text),) if text else ()
                return self._from(ReasoningResponseItem(summary=summary), block.kept)

    def _from(self, item: T, kept: dict[str, Json] | None = None) -> T:
        """Return the item with the origin of this answer."""
        origin = replace(self.origin, kept=kept) if kept else self.origin
        return item.model_copy(update={"origin": origin})
