"""What a line that was entered means: an answer, a slash command, a command of the user's own, or something to say."""

from __future__ import annotations

from app_server.chat.conversation import ChatConversation
from app_server.chat.slash_commands import SlashCommands, ThreadChooser


class EnteredLines:
    def __init__(self, chat: ChatConversation, choose: ThreadChooser | None = None) -> None:
        self._chat, self._commands = chat, SlashCommands(chat, choose)

    async def enter(self, line: str) -> None:
        """Raises Leave."""
        question = self._chat.questions.current
        if question is not None:
            problem = question.enter(line)
            if problem is not None:
                self._chat.view.line(problem, "red")
        elif not line.strip():
            return
        elif line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:]:  # a path is something to say
            await self._commands.run(line.strip())
        elif line.startswith("!"):
            await self._chat.run_own(line[1:].strip())
        else:
            await self._chat.send(line)
