"""The context of slash commands: the chat, the abilities of its frontend, choices for the user, and the named
commands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from app_server.cli.chat.chat_conversation import ChatConversation
from app_server.cli.chat.named_commands import NamedCommands
from app_server_protocol.encoding import Json
from app_server_protocol.v2.thread import Thread

T = TypeVar("T")


class PickerRow(Struct, Generic[T], frozen=True):
    """A row of a list: a text, a note about it, and its value."""

    text: str
    note: str
    value: T


class Choices(Generic[T]):
    """Rows that can be filtered, and the selected one. `selected` is an index of `matching`; 0 if nothing matches."""

    def __init__(self, what: str, rows: Sequence[PickerRow[T]]) -> None:
        """`what` is a word for the kind of rows."""
        self.what = what
        self._rows = rows
        self.matching = rows
        self.selected = 0

    @property
    def chosen(self) -> PickerRow[T] | None:
        return self.matching[self.selected] if self.matching else None

    def filter(self, text: str) -> None:
        """Keep the rows that contain every word of the text. The selected row stays selected if it is among them."""
        before = self.chosen
        words = text.casefold().split()
        self.matching = [each for each in self._rows if _contains(each, words)]
        at = next((number for number, each in enumerate(self.matching) if each is before), 0)
        self.selected = at

    def move(self, by: int) -> None:
        """Move the selection up or down, within the list."""
        self.selected = max(0, min(self.selected + by, len(self.matching) - 1))

    def shown(self, rows: int) -> tuple[int, Sequence[PickerRow[T]]]:
        """Return up to `rows` rows around the selected one, and the index of the first of them."""
        first = max(0, min(self.selected - rows // 2, len(self.matching) - rows))
        return first, self.matching[first : first + rows]


def _contains(row: PickerRow[T], words: Sequence[str]) -> bool:
    text = f"{row.text} {row.note}".casefold()
    return all(word in text for word in words)


class ChatScreen(Protocol):
    """The screen of a frontend with a cursor, which can do more than print lines."""

    async def choose(self, choices: Choices[T]) -> T | None:
        """Let the user choose. Return None if nothing was chosen."""

    async def page(self, text: str) -> None:
        """Show a long text, which may have colours, until the user leaves it."""

    async def copy(self, text: str) -> str:
        """Copy a text to the clipboard. Return the name of the program that took it."""

    def put_back(self, text: str) -> None:
        """Insert a text into the prompt, so that the user can change it and send it again."""


class SlashContext(Struct):
    chat: ChatConversation
    named: NamedCommands
    screen: ChatScreen | None = None
    listed: Sequence[Thread] = msgspec.field(default_factory=list)
    """Threads that were listed last, by number."""
    hooks: Sequence[Json] | None = None
    """Hooks that were listed last; None before the first list."""

    def print(self, text: str, style: str = "") -> None:
        self.chat.view.line(text, style)

    async def choose(self, what: str, rows: Sequence[PickerRow[T]]) -> T | None:
        """Let the user choose. Without a screen, list the rows, and return None."""
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
    """Possible arguments, if there are only a few."""
