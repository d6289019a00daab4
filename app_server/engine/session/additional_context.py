"""Context that a client adds to the user's input: the form in which it is sent to the model, and when it is sent again.

A text that the client vouches for becomes a developer message. Any other text becomes the output of a call, like
everything that the model reads and must not obey. The call is invented, since providers refuse an output without a
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct
from pydantic_core import to_json

from app_server_protocol.responses import (
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    InputText,
    MessageItem,
    ResponseItem,
)

CALL: Final = "additional_context"
_CALL_ID: Final = 9
"""Length of a call id that every provider accepts, in letters and digits."""


class ContextEntry(Struct, frozen=True):
    key: str
    value: str
    trusted: bool
    """Whether the client vouches for the text."""


class AdditionalContext:
    """The context entries of one conversation. An entry that the last turn had as well is not sent again."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._last: frozenset[ContextEntry] = frozenset()
        self.is_empty = True
        """Whether the last turn had no entries."""

    def items(
        self, entries: Sequence[ContextEntry], history: Iterable[ResponseItem]
    ) -> tuple[ResponseItem, ...]:
        """Return the items that are sent to the model before the user's input. An entry that a compaction dropped is
        sent again.
        """
        repeated = [entry for entry in entries if entry in self._last]
        kept = _values(history) if repeated else frozenset()
        self._last, self.is_empty = frozenset(entries), not entries
        new = [entry for entry in entries if entry not in repeated or _told(entry) not in kept]
        return tuple(item for entry in sorted(new, key=lambda each: each.key) for item in self._sent(entry))

    def _sent(self, entry: ContextEntry) -> Sequence[ResponseItem]:
        if entry.trusted:
            return (MessageItem(role="developer", content=(InputText(text=_told(entry)),)),)
        id = "".join(each for each in self._new_id() if each.isalnum())[-_CALL_ID:]
        output = FunctionCallOutputPayload(content=_told(entry), success=True)
        return (
            FunctionCall(name=CALL, arguments=to_json({"key": entry.key}).decode(), call_id=id),
            FunctionCallOutput(call_id=id, output=output),
        )


def _told(entry: ContextEntry) -> str:
    return f"<{entry.key}>{entry.value}</{entry.key}>" if entry.trusted else entry.value


def _values(history: Iterable[ResponseItem]) -> frozenset[str]:
    """Return the texts of developer messages and of outputs."""
    found: set[str] = set()
    for item in history:
        match item:
            case MessageItem(role="developer", content=(InputText(text=text),)):
                found.add(text)
            case FunctionCallOutput(output=output):
                found.add(output.content)
            case _:
                pass
    return frozenset(found)
