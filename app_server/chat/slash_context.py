"""What slash commands work with: the chat, what its frontend can show, the names that can be typed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from app_server.chat.choices import Choices, PickerRow
from app_server.chat.conversation import ChatConversation
from app_server.chat.named_commands import NamedCommands
from protocol.v2.thread import Thread

T = TypeVar("T")


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
