"""What slash commands work with: the chat, what its frontend can show, what a user chooses among, and the names that
can be typed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from app_server.chat.conversation import ChatConversation
from app_server.chat.named_commands import NamedCommands
from app_server_protocol.v2.thread import Thread

T = TypeVar("T")


class PickerRow(Struct, Generic[T], frozen=True):
    """A row of a list: what it is, and more about it."""

    text: str
    note: str
    value: T


class Choices(Generic[T]):
    """`selected` is an index of `matching`; 0 where nothing matches."""

    def __init__(self, what: str, rows: Sequence[PickerRow[T]]) -> None:
        """Say what is chosen, in a word."""
        self.what = what
        self._rows = rows
        self.matching = rows
        self.selected = 0

    @property
    def chosen(self) -> PickerRow[T] | None:
        return self.matching[self.selected] if self.matching else None

    def filter(self, text: str) -> None:
        """Keep the rows that contain every word of the text. The chosen one stays chosen if it is among them."""
        before = self.chosen
        words = text.casefold().split()
        self.matching = [each for each in self._rows if _contains(each, words)]
        at = next((number for number, each in enumerate(self.matching) if each is before), 0)
        self.selected = at

    def move(self, by: int) -> None:
        """Move the choice up or down, to the ends of the list at most."""
        self.selected = max(0, min(self.selected + by, len(self.matching) - 1))

    def shown(self, rows: int) -> tuple[int, Sequence[PickerRow[T]]]:
        """Return so many rows around the chosen one, and the index of the first of them."""
        first = max(0, min(self.selected - rows // 2, len(self.matching) - rows))
        return first, self.matching[first : first + rows]


def _contains(row: PickerRow[T], words: Sequence[str]) -> bool:
    text = f"{row.text} {row.note}".casefold()
    return all(word in text for word in words)


class ChatScreen(Protocol):
    """Screen of a frontend with a cursor, which can do more than print lines."""

    async def choose(self, choices: Choices[T]) -> T | None:
        """Let the user choose; None: nothing was chosen."""

    async def page(self, text: str) -> None:
        """Show a long text that may have colours, until the user has seen it."""

    async def copy(self, text: str) -> str:
        """Put a text into the clipboard, and say who took it."""

    def put_back(self, text: str) -> None:
        """Put words into the prompt, to be said differently."""


class SlashContext(Struct):
    chat: ChatConversation
    named: NamedCommands
    screen: ChatScreen | None = None
    listed: Sequence[Thread] = msgspec.field(default_factory=list)
    """The threads that were listed last, for their numbers."""

    def print(self, text: str, style: str = "") -> None:
        self.chat.view.line(text, style)

    async def choose(self, what: str, rows: Sequence[PickerRow[T]]) -> T | None:
        """Let the user choose; where that cannot be, list what there is, and choose nothing."""
        if self.screen is not None:
            return await self.screen.choose(Choices(what, rows))
        for number, row in enumerate(rows, 1):
            self.print(f"{number:>3}  {row.text}  {f'({row.note})' if row.note else ''}".rstrip()[:200])
        return None


class SlashCommand(Struct, frozen=True):
    help: str
    run: Callable[[SlashContext, str], Awaitable[None]]
    arguments: str = ""
    words: Sequence[str] = ()
    """What the argument may be, where it is one of a few."""
