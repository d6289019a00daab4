"""The model's history: an append-only list of items, and its normalised form for requests.

In a request, every call has exactly one output and every output a call, even after interrupts. `for_prompt` ensures
that without changing the recorded items.
"""

from __future__ import annotations

from collections import Counter, deque
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
"""The replacement for a missing output."""


class ConversationHistory:
    """Items in order. Items themselves are immutable."""

    def __init__(self, items: Iterable[ResponseItem] = ()) -> None:
        self._items: list[ResponseItem] = []
        self._prompt: list[ResponseItem] = []
        self._waiting: Counter[tuple[bool, str]] = Counter()
        self._paired = True
        self.replace(items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[ResponseItem]:
        return self._items

    def record(self, items: Iterable[ResponseItem]) -> None:
        for item in items:
            if not isinstance(item, OtherItem):
                self._items.append(item)
                self._follow(item)

    def replace(self, items: Iterable[ResponseItem]) -> None:
        self._items, self._prompt, self._paired = [], [], True
        self._waiting.clear()
        self.record(items)

    def for_prompt(self) -> list[ResponseItem]:
        """Return a request's input. Usually just a copy, because nearly always every call has its output."""
        return list(self._prompt) if self._paired and not self._waiting else normalise(self._items)

    def _follow(self, item: ResponseItem) -> None:
        match item:
            case GhostSnapshot():
                return
            case FunctionCall() | LocalShellCall() | CustomToolCall():
                self._waiting[call_key(item)] += 1
            case FunctionCallOutput() | CustomToolCallOutput():
                key = (isinstance(item, CustomToolCallOutput), item.call_id)
                if not self._waiting[key]:
                    self._paired = False
                self._waiting[key] -= 1
                if self._waiting[key] <= 0:
                    del self._waiting[key]
            case _:
                pass
        self._prompt.append(item)


def normalise(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Return a request's input: calls paired with outputs, without snapshots and unknown items.

    A call without an output gets an "aborted" one directly after it; an output without a call is dropped. Ids may
    repeat in later replies: each output belongs to the earliest call with its id that has no output yet.
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
    """Return the indices of calls that have an output, and of outputs that have a call."""
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
    """Return the key that pairs a call with its output; custom tools have separate keys, because their outputs do."""
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
