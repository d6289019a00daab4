"""What an entered line means that answers no question: a slash command of the chat, a command of the user's own, or
something to say; and the threads that `/resume` offers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from app_server.chat.conversation import ChatConversation
from app_server.client.failures import AppServerError
from app_server.client.options import ListOptions
from protocol.v2 import settings
from protocol.v2.thread import Thread


class ThreadChoices:
    """`selected` is an index of `matching`; 0 where nothing matches."""

    def __init__(self, threads: Sequence[Thread]) -> None:
        self._threads = threads
        self.matching = threads
        self.selected = 0

    @property
    def chosen(self) -> Thread | None:
        return self.matching[self.selected] if self.matching else None

    def filter(self, text: str) -> None:
        """Keep the threads that contain every word of the text. The chosen one stays chosen if it is among them."""
        before = self.chosen
        words = text.casefold().split()
        self.matching = [each for each in self._threads if _contains(each, words)]
        ids = [each.id for each in self.matching]
        self.selected = ids.index(before.id) if before is not None and before.id in ids else 0

    def move(self, by: int) -> None:
        """Move the choice up or down, to the ends of the list at most."""
        self.selected = max(0, min(self.selected + by, len(self.matching) - 1))

    def shown(self, rows: int) -> tuple[int, Sequence[Thread]]:
        """Return so many threads around the chosen one, and the index of the first of them."""
        first = max(0, min(self.selected - rows // 2, len(self.matching) - rows))
        return first, self.matching[first : first + rows]


def title_of(thread: Thread) -> str:
    """Return the thread's name, or the beginning of what was said, in one line."""
    return " ".join((thread.name or thread.preview or "(nothing said)").split())


def _contains(thread: Thread, words: Sequence[str]) -> bool:
    text = f"{thread.name or ''} {thread.preview} {thread.cwd}".casefold()
    return all(word in text for word in words)


LISTED: Final = 20
"""Threads that `/resume` lists at once where there is no terminal."""

OFFERED: Final = 200
"""Threads among which a picker chooses: the newest ones."""

ThreadChooser = Callable[[Sequence[Thread]], Awaitable[Thread | None]]
"""Lets the user choose; None: nothing was chosen."""

APPROVALS: Final = ("untrusted", "on-request", "never")
SANDBOXES: Final[Mapping[str, settings.SandboxPolicy]] = {
    "read-only": settings.ReadOnlySandboxPolicy(),
    "workspace-write": settings.WorkspaceWriteSandboxPolicy(),
    "danger-full-access": settings.DangerFullAccessSandboxPolicy(),
}


class Leave(Exception):
    """The user wants to end the chat."""


class SlashCommand(Struct, frozen=True):
    help: str
    run: Callable[[SlashCommands, str], Awaitable[None]]
    arguments: str = ""


class SlashCommands:
    def __init__(self, chat: ChatConversation, choose: ThreadChooser | None) -> None:
        """List threads with numbers where there is no `choose`."""
        self._chat, self._choose = chat, choose
        self._listed: list[Thread] = []
        """What `/resume` listed last, for numbers."""

    async def run(self, line: str) -> None:
        """Raises Leave."""
        name, _, argument = line.removeprefix("/").partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            self._print(f"unknown command /{name}; /help lists all", "red")
            return
        try:
            await command.run(self, argument.strip())
        except AppServerError as error:
            self._print(str(error), "red")

    def _print(self, text: str, style: str = "") -> None:
        self._chat.view.line(text, style)

    # --- settings
    async def model(self, argument: str) -> None:
        if not argument:
            for each in await self._chat.server.models():
                self._print(f"  {each.model}" + (" (in use)" if each.model == self._chat.model else ""))
            return
        name, _, effort = argument.partition(" ")
        self._chat.settings["model"] = self._chat.model = name
        if effort.strip():
            self._chat.settings["effort"] = effort.strip()
        self._print(f"from the next turn on: {argument}")

    async def approvals(self, argument: str) -> None:
        if argument not in APPROVALS:
            self._print(f"{self._chat.approval_policy}; expected one of {', '.join(APPROVALS)}")
            return
        self._chat.settings["approval_policy"] = argument  # type: ignore[typeddict-item]  # one of the words
        self._chat.approval_policy = argument
        self._print(f"from the next turn on: {argument}")

    async def sandbox(self, argument: str) -> None:
        policy = SANDBOXES.get(argument)
        if policy is None:
            self._print(f"{self._chat.sandbox}; expected one of {', '.join(SANDBOXES)}")
            return
        self._chat.settings["sandbox_policy"] = policy
        self._chat.sandbox = argument
        self._print(f"from the next turn on: {argument}")

    # --- turns
    async def compact(self, argument: str) -> None:
        await self._chat.thread.compact()
        self._print("the history was replaced by a summary", "dim")

    async def review(self, argument: str) -> None:
        custom = {"type": "custom", "instructions": argument}
        target = custom if argument else {"type": "uncommittedChanges"}
        await self._chat.server.request_raw(
            "review/start", {"threadId": self._chat.thread.id, "target": target}
        )

    async def undo(self, argument: str) -> None:
        turns = (await self._chat.thread.read()).turns
        if not turns:
            self._print("there is no turn to take back")
            return
        last = {"threadId": self._chat.thread.id, "beforeTurnId": turns[-1].id}
        await self._chat.server.request_raw("thread/revert", last)
        self._print("the last turn is taken back; files are as they are (/diff shows what it changed)")

    async def diff(self, argument: str) -> None:
        if self._chat.diff:
            self._chat.view.diff(self._chat.diff)
        else:
            self._print("the last turn changed no files")

    async def status(self, argument: str) -> None:
        chat = self._chat
        opened = chat.thread.opened
        for name, value in (
            ("thread", chat.thread.id),
            ("folder", opened.cwd),
            ("model", f"{chat.model} ({opened.model_provider})"),
            ("approvals", chat.approval_policy),
            ("sandbox", chat.sandbox),
            ("tokens", str(chat.tokens)),
            ("stored in", _place(opened.thread.path)),
        ):
            self._print(f"  {name:<10}{value}")

    # --- threads
    async def new(self, argument: str) -> None:
        await self._chat.start(self._chat.cwd)
        self._print("a new thread", "dim")

    async def resume(self, argument: str) -> None:
        """Offer a choice among threads (all, or those with a text), or open the one with an id or a listed number."""
        if argument.isdecimal() and 1 <= int(argument) <= len(self._listed):
            await self._chat.resume(self._listed[int(argument) - 1].id)
            return
        if argument.count("-") == 4 and " " not in argument:
            await self._chat.resume(argument)
            return
        found = await self._stored(argument, LISTED if self._choose is None else OFFERED)
        if not found:
            self._print(f"no stored thread contains {argument!r}" if argument else "no stored thread", "dim")
        elif self._choose is None:
            self._list(found)
        elif (chosen := await self._choose(found)) is not None:
            await self._chat.resume(chosen.id)

    async def _stored(self, text: str, most: int) -> list[Thread]:
        options = ListOptions(page_size=most, sort_key="updated_at")
        if text:
            options["search"] = text
        found: list[Thread] = []
        async for thread in self._chat.server.threads(**options):
            found.append(thread)
            if len(found) == most:
                break
        return found

    def _list(self, threads: list[Thread]) -> None:
        self._listed = threads
        for number, thread in enumerate(threads, 1):
            self._print(f"{number:>3}  {title_of(thread)}  ({thread.cwd})"[:200])
        self._print("/resume NUMBER opens one", "dim")

    async def fork(self, argument: str) -> None:
        await self._chat.fork()
        self._print("a copy of the thread; the first one stays as it was", "dim")

    async def name(self, argument: str) -> None:
        if not argument:
            self._print("expected a name")
            return
        await self._chat.thread.set_name(argument)

    # --- what there is
    async def mcp(self, argument: str) -> None:
        listed = await self._chat.server.request_raw("mcpServerStatus/list", {})
        for server in listed["data"]:
            self._print(f"  {server['name']}: {', '.join(sorted(server['tools'])) or 'no tools'}")
        if not listed["data"]:
            self._print("no MCP server is configured")

    async def skills(self, argument: str) -> None:
        listed = await self._chat.server.request_raw("skills/list", {"cwds": [str(self._chat.cwd)]})
        skills = [skill for entry in listed["data"] for skill in entry["skills"]]
        for skill in skills:
            self._print(f"  {skill['name']}: {skill['description']}")
        if not skills:
            self._print("there are no skills here")

    async def help(self, argument: str) -> None:
        for name, command in COMMANDS.items():
            self._print(f"  /{name} {command.arguments}".ljust(34) + command.help)
        self._print(
            "  @NAME completes a file, !COMMAND runs a command of yours, Ctrl-C interrupts, twice leaves"
        )

    async def quit(self, argument: str) -> None:
        raise Leave


def _place(path: str | None) -> str:
    """Say where the thread is stored: a transcript is written with the first turn, if it can be."""
    if path is None:
        return "nowhere"
    return path if Path(path).is_file() else f"{path} (nothing is stored there)"


COMMANDS: Final[Mapping[str, SlashCommand]] = {
    "model": SlashCommand("list models, or choose one", SlashCommands.model, "[NAME [EFFORT]]"),
    "approvals": SlashCommand("when you are asked", SlashCommands.approvals, "[POLICY]"),
    "sandbox": SlashCommand("what commands may do", SlashCommands.sandbox, "[MODE]"),
    "compact": SlashCommand("replace the history by a summary", SlashCommands.compact),
    "review": SlashCommand("review uncommitted changes, or what you say", SlashCommands.review, "[WHAT]"),
    "undo": SlashCommand("take back the last turn", SlashCommands.undo),
    "diff": SlashCommand("what the last turn changed", SlashCommands.diff),
    "status": SlashCommand("the thread and its settings", SlashCommands.status),
    "new": SlashCommand("begin a new thread", SlashCommands.new),
    "resume": SlashCommand("choose a stored thread, or open one", SlashCommands.resume, "[TEXT|NUMBER|ID]"),
    "fork": SlashCommand("go on in a copy of the thread", SlashCommands.fork),
    "name": SlashCommand("name the thread", SlashCommands.name, "NAME"),
    "mcp": SlashCommand("MCP servers and their tools", SlashCommands.mcp),
    "skills": SlashCommand("skills of this folder", SlashCommands.skills),
    "help": SlashCommand("this list", SlashCommands.help),
    "quit": SlashCommand("leave", SlashCommands.quit),
}


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
