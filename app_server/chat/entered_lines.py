"""What a line means that answers no question: a slash command, a command of the user's own, or something to say."""

from __future__ import annotations

from app_server.chat.conversation import ChatConversation
from app_server.chat.slash_commands import SlashCommands, ThreadChooser


class EnteredLines:
    def __init__(self, chat: ChatConversation, choose: ThreadChooser | None = None) -> None:
        self._chat, self._commands = chat, SlashCommands(chat, choose)

    async def enter(self, line: str) -> None:
        """Raises Leave."""
        if not line.strip():
            return
        if line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:]:  # a path is something to say
            await self._commands.run(line.strip())
        elif line.startswith("!"):
            await self._chat.run_own(line[1:].strip())
        else:
            await self._chat.send(line)
