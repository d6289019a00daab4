"""What the model remembers: an append-only list of items, and the normalised form that a request may hold.

Every call has exactly one output and every output its call, whatever was interrupted: `for_prompt` makes it so
without changing what was recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    GhostSnapshot,
    LocalShellCall,
    OtherItem,
    ResponseItem,
)

ABORTED = "aborted"
"""The output that stands for one that never came."""


class ConversationHistory:
    """Items in order. Items themselves are immutable."""

    def __init__(self, items: Iterable[ResponseItem] = ()) -> None:
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[ResponseItem]:
        return self._items

    def record(self, items: Iterable[ResponseItem]) -> None:
        self._items.extend(item for item in items if not isinstance(item, OtherItem))

    def replace(self, items: Iterable[ResponseItem]) -> None:
        self._items = list(items)

    def for_prompt(self) -> list[ResponseItem]:
        return normalise(self._items)


def normalise(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """A request's input: calls paired with outputs, snapshots and unknown items left out.

    A call without output gets one that says so, right after it; an output without its call is dropped. Ids may
    come again in a later reply: each output belongs to the earliest call of its id that still waits for one.
    """
    answered, answers = _pairs(items)
    out: list[ResponseItem] = []
    for n, item in enumerate(items):
        match item:
            case GhostSnapshot() | OtherItem():
                continue
            case FunctionCall() | LocalShellCall() | CustomToolCall():
                out.append(item)
                if n not in answered:
                    out.append(aborted_output(item))
            case FunctionCallOutput() | CustomToolCallOutput():
                if n in answers:
                    out.append(item)
            case _:
                out.append(item)
    return out


def _pairs(items: Sequence[ResponseItem]) -> tuple[set[int], set[int]]:
    """The places of calls that have an output, and of outputs that have a call."""
    waiting: dict[tuple[bool, str], deque[int]] = {}
    answered: set[int] = set()
    answers: set[int] = set()
    for n, item in enumerate(items):
        match item:
            case FunctionCall() | LocalShellCall() | CustomToolCall():
                waiting.setdefault(call_key(item), deque()).append(n)
            case FunctionCallOutput() | CustomToolCallOutput():
                calls = waiting.get((isinstance(item, CustomToolCallOutput), item.call_id))
                if calls:
                    answered.add(calls.popleft())
                    answers.add(n)
            case _:
                pass
    return answered, answers


def call_key(call: FunctionCall | LocalShellCall | CustomToolCall) -> tuple[bool, str]:
    """What pairs a call with its output; a custom tool's outputs are of a kind of their own."""
    if isinstance(call, LocalShellCall):
        return False, call.call_id or call.id or ""
    return isinstance(call, CustomToolCall), call.call_id


def aborted_output(
    call: FunctionCall | LocalShellCall | CustomToolCall, text: str = ABORTED
) -> FunctionCallOutput | CustomToolCallOutput:
    custom, call_id = call_key(call)
    if custom:
        return CustomToolCallOutput(call_id=call_id, output=text)
    return FunctionCallOutput(call_id=call_id, output=FunctionCallOutputPayload(content=text))
