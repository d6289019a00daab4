"""What an entered line means that answers no question: a slash command of the chat, a prompt or a skill by its name, a
command of the user's own, or something to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from app_server.chat.conversation import ChatConversation
from app_server.chat.named_commands import NamedCommands
from app_server.chat.setting_commands import SETTING_COMMANDS
from app_server.chat.slash_context import ChatScreen, SlashCommand, SlashContext
from app_server.chat.thread_commands import THREAD_COMMANDS
from app_server.client.failures import AppServerError

KEYS: Final = """\
  @NAME completes a file, !COMMAND runs a command of yours, Tab completes, Ctrl-R searches what was said
  Alt-Enter, Shift-Enter, Ctrl-J or \\ at the end begin a new line, Ctrl-G opens your editor
  Ctrl-O shows all of what was cut short, Ctrl-C interrupts, twice leaves"""


class Leave(Exception):
    """The user wants to end the chat."""


async def show_help(at: SlashContext, argument: str) -> None:
    for name, command in COMMANDS.items():
        at.print(f"  /{name} {command.arguments}".ljust(34) + command.help)
    for name, each in (await at.named.read(str(at.chat.cwd))).items():
        at.print(f"  /{name} {each.hint}".ljust(34) + " ".join(each.help.split()))
    for line in KEYS.splitlines():
        at.print(line)


async def leave(at: SlashContext, argument: str) -> None:
    raise Leave


COMMANDS: Final[Mapping[str, SlashCommand]] = {
    **SETTING_COMMANDS,
    **THREAD_COMMANDS,
    "help": SlashCommand("this list", show_help),
    "quit": SlashCommand("leave", leave),
}


class EnteredLines:
    def __init__(self, chat: ChatConversation, home: Path | None, screen: ChatScreen | None = None) -> None:
        self.named = NamedCommands(chat.server, home, [*COMMANDS])
        self._at = SlashContext(chat, self.named, screen)

    async def enter(self, line: str) -> None:
        """Raises Leave."""
        if not line.strip():
            return
        if line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:]:  # a path is something to say
            await self._run(line.strip())
        elif line.startswith("!"):
            await self._at.chat.run_own(line[1:].strip())
        else:
            await self._at.chat.send(line)

    async def _run(self, line: str) -> None:
        """Run a slash command. Raises Leave."""
        name, *rest = line.removeprefix("/").split(maxsplit=1)
        argument = rest[0] if rest else ""
        try:
            if (command := COMMANDS.get(name)) is not None:
                await command.run(self._at, argument)
                return
            named = await self.named.read(str(self._at.chat.cwd))
            if name in named:
                await self._at.chat.send(*named[name].words(argument))
                return
        except AppServerError as error:
            self._at.print(str(error), "red")
            return
        close = get_close_matches(name, [*COMMANDS, *named], n=1)
        meant = f"did you mean /{close[0]}? " if close else ""
        self._at.print(f"unknown command /{name}; {meant}/help lists all", "red")
