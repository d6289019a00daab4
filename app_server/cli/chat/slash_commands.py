"""Slash commands, and the meaning of an entered line that answers no question.

Such a line is a slash command, a prompt or a skill by its name, a command of the user, or a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from app_server.cli.chat import rewind_commands
from app_server.cli.chat.chat_conversation import ChatConversation
from app_server.cli.chat.event_view import user_text
from app_server.cli.chat.hook_commands import hooks
from app_server.cli.chat.named_commands import NamedCommands
from app_server.cli.chat.slash_context import ChatScreen, PickerRow, SlashCommand, SlashContext
from app_server.client.failures import AppServerError
from app_server.client.options import ListOptions
from app_server_protocol.v2 import items, settings
from app_server_protocol.v2.models import ListedModel
from app_server_protocol.v2.thread import Thread

APPROVALS: Final = ("untrusted", "on-request", "never")
SANDBOXES: Final[Mapping[str, settings.SandboxPolicy]] = {
    "read-only": settings.ReadOnlySandboxPolicy(),
    "workspace-write": settings.WorkspaceWriteSandboxPolicy(),
    "danger-full-access": settings.DangerFullAccessSandboxPolicy(),
}

LISTED: Final = 20
"""Number of threads that are listed at once if there is no picker."""

OFFERED: Final = 200
"""Number of threads from which a picker lets the user choose: the newest ones."""

ANY: Final = "?"
"""Argument of `/fork` with which the user can choose a thread."""

KEYS: Final = """\
  @NAME completes a file, !COMMAND runs a command of yours, Tab completes, Ctrl-R searches what was said
  Alt-Enter, Shift-Enter, Ctrl-J or \\ at the end begin a new line, Ctrl-G opens your editor
  Ctrl-O shows all of what was cut short, Ctrl-C interrupts, twice leaves"""


class Leave(Exception):
    """The user has asked to end the chat."""


async def model(at: SlashContext, argument: str) -> None:
    """Set the named model, or let the user choose a model and its effort."""
    name, _, effort = argument.partition(" ")
    if not name:
        models = await at.named.models(at.chat.thread.opened.model_provider)
        rows = [PickerRow(each.model, _about(each, at.chat.model), each) for each in models]
        chosen = await at.choose("model", rows)
        if chosen is None:
            return
        name = chosen.model
        efforts = [
            PickerRow(each.reasoning_effort, each.description, each.reasoning_effort)
            for each in chosen.supported_reasoning_efforts
        ]
        effort = (await at.choose("effort", efforts) if efforts else None) or ""
    at.chat.settings["model"] = at.chat.model = name
    if effort.strip():
        at.chat.settings["effort"] = effort.strip()
    at.print(f"from the next turn on: {name} {effort.strip()}".rstrip())


def _about(model: ListedModel, used: str) -> str:
    """Return the description of a model in a list: its name, its purpose, its context window and its default effort."""
    window, efforts = model.context_window, model.supported_reasoning_efforts
    parts = (
        "in use" if model.model == used else "",
        model.display_name if model.display_name.lower() != model.model.lower() else "",
        model.description.removesuffix("."),
        "" if window is None else f"{window:,} tokens",
        f"effort {model.default_reasoning_effort}" if efforts else "",
    )
    return "; ".join(part for part in parts if part)


async def approvals(at: SlashContext, argument: str) -> None:
    if argument not in APPROVALS:
        at.print(f"{at.chat.approval_policy}; expected one of {', '.join(APPROVALS)}")
        return
    at.chat.settings["approval_policy"] = argument  # type: ignore[typeddict-item]  # one of the words
    at.chat.approval_policy = argument
    at.print(f"from the next turn on: {argument}")


async def sandbox(at: SlashContext, argument: str) -> None:
    policy = SANDBOXES.get(argument)
    if policy is None:
        at.print(f"{at.chat.sandbox}; expected one of {', '.join(SANDBOXES)}")
        return
    at.chat.settings["sandbox_policy"] = policy
    at.chat.sandbox = argument
    at.print(f"from the next turn on: {argument}")


async def status(at: SlashContext, argument: str) -> None:
    chat, opened = at.chat, at.chat.thread.opened
    for name, value in (
        ("thread", chat.thread.id),
        ("folder", opened.cwd),
        ("model", f"{chat.model} ({opened.model_provider})"),
        ("approvals", chat.approval_policy),
        ("sandbox", chat.sandbox),
        ("tokens", str(chat.tokens)),
        ("stored in", _place(opened.thread.path)),
    ):
        at.print(f"  {name:<10}{value}")


async def mcp(at: SlashContext, argument: str) -> None:
    listed = await at.chat.server.request_raw("mcpServerStatus/list", {})
    for server in listed["data"]:
        at.print(f"  {server['name']}: {', '.join(sorted(server['tools'])) or 'no tools'}")
    if not listed["data"]:
        at.print("no MCP server is configured")


async def skills(at: SlashContext, argument: str) -> None:
    found = await at.named.skills(str(at.chat.cwd))
    for skill in found:
        at.print(f"  {skill['name']}: {skill['description']}")
    if not found:
        at.print("there are no skills here")


def _place(path: str | None) -> str:
    """Return the place where the thread is stored. A transcript is written with the first turn, if that is possible."""
    if path is None:
        return "nowhere"
    return path if Path(path).is_file() else f"{path} (nothing is stored there)"


async def compact(at: SlashContext, argument: str) -> None:
    await at.chat.thread.compact()
    at.print("the history was replaced by a summary", "dim")


async def review(at: SlashContext, argument: str) -> None:
    custom = {"type": "custom", "instructions": argument}
    target = custom if argument else {"type": "uncommittedChanges"}
    await at.chat.server.request_raw("review/start", {"threadId": at.chat.thread.id, "target": target})


async def revert(at: SlashContext, argument: str) -> None:
    """Remove the last turn from the conversation, and show it. Its message is put back into the prompt."""
    turns = (await at.chat.thread.read()).turns
    if not turns:
        at.print("there is no turn to take back")
        return
    last = turns[-1]
    params = {"threadId": at.chat.thread.id, "beforeTurnId": last.id}
    await at.chat.server.request_raw("thread/revert", params)
    said = [user_text(item) for item in last.items if isinstance(item, items.UserMessageThreadItem)]
    at.print("the last turn is out of the conversation; files stay as they are:")
    for text in said:
        at.print(f"> {text}", "bold")
    files = [
        each for item in last.items if isinstance(item, items.FileChangeThreadItem) for each in item.changes
    ]
    for change in files:
        at.print(f"  {change.kind.type} {change.path}: the file is as the turn left it")
    if at.screen is not None:
        at.screen.put_back("\n".join(said))


async def _rewind(at: SlashContext, argument: str) -> None:
    await rewind_commands.rewind(at, argument)


async def _undo(at: SlashContext, argument: str) -> None:
    await rewind_commands.undo(at, argument)


async def _redo(at: SlashContext, argument: str) -> None:
    await rewind_commands.redo(at, argument)


async def diff(at: SlashContext, argument: str) -> None:
    if not at.chat.diff:
        at.print("the last turn changed no files")
    elif at.screen is None:
        at.chat.view.diff(at.chat.diff)
    else:
        await at.screen.page(at.chat.view.diff_to_page(at.chat.diff))


async def copy(at: SlashContext, argument: str) -> None:
    if not at.chat.view.last_message:
        at.print("the model has said nothing yet")
    elif at.screen is None:
        at.print("only a terminal has a clipboard")
    else:
        at.print(f"the last message was given to {await at.screen.copy(at.chat.view.last_message)}", "dim")


async def new(at: SlashContext, argument: str) -> None:
    await at.chat.start(at.chat.cwd)
    at.print("a new thread", "dim")


async def resume(at: SlashContext, argument: str) -> None:
    """Offer a choice of threads (all, or those with a text), or open the one with an id or a listed number."""
    thread_id = await _chosen(at, argument)
    if thread_id is not None:
        await at.chat.resume(thread_id)


async def fork(at: SlashContext, argument: str) -> None:
    """Continue in a copy of the thread, or of one that is chosen as in `/resume`."""
    if argument:
        thread_id = await _chosen(at, argument.removeprefix(ANY))
    else:
        thread_id = at.chat.thread.id
    if thread_id is None:
        return
    await at.chat.fork(thread_id)
    at.print("a copy of the thread; the first one stays as it was", "dim")


async def name(at: SlashContext, argument: str) -> None:
    if not argument:
        at.print("expected a name")
        return
    await at.chat.thread.set_name(argument)


async def _chosen(at: SlashContext, argument: str) -> str | None:
    """Return the id of the thread that the argument names, or that the user chooses among those with the text. None if
    no thread is chosen.
    """
    if argument.isdecimal() and 1 <= int(argument) <= len(at.listed):
        return at.listed[int(argument) - 1].id
    if argument.count("-") == 4 and " " not in argument:
        return argument
    at.listed = found = await _stored(at, argument)
    if not found:
        at.print(f"no stored thread contains {argument!r}" if argument else "no stored thread", "dim")
        return None
    chosen = await at.choose("thread", [PickerRow(title_of(each), each.cwd, each.id) for each in found])
    if at.screen is None:
        at.print("/resume NUMBER opens one", "dim")
    return chosen


async def _stored(at: SlashContext, text: str) -> list[Thread]:
    most = LISTED if at.screen is None else OFFERED
    options = ListOptions(page_size=most, sort_key="updated_at")
    if text:
        options["search"] = text
    found: list[Thread] = []
    async for thread in at.chat.server.threads(**options):
        found.append(thread)
        if len(found) == most:
            break
    return found


def title_of(thread: Thread) -> str:
    """Return the thread's name, or the beginning of its first message, in one line."""
    return " ".join((thread.name or thread.preview or "(nothing said)").split())


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
    "model": SlashCommand("choose among the models that the provider serves", model, "[NAME [EFFORT]]"),
    "approvals": SlashCommand("when you are asked", approvals, "[POLICY]", APPROVALS),
    "sandbox": SlashCommand("what commands may do", sandbox, "[MODE]", tuple(SANDBOXES)),
    "status": SlashCommand("the thread and its settings", status),
    "mcp": SlashCommand("MCP servers and their tools", mcp),
    "skills": SlashCommand("skills of this folder", skills),
    "hooks": SlashCommand(
        "hooks of this folder; agree to them", hooks, "[trust|off|on NUMBER]", ("trust", "off", "on")
    ),
    "compact": SlashCommand("replace the history by a summary", compact),
    "review": SlashCommand("review uncommitted changes, or what you say", review, "[WHAT]"),
    "revert": SlashCommand("take the last turn out of the conversation; files stay as they are", revert),
    "rewind": SlashCommand(
        "go back to a message, with the files", _rewind, "[NUMBER [both|files|conversation] [uncertain]]"
    ),
    "undo": SlashCommand(
        "put the files back to before the last turn; the conversation stays", _undo, "[uncertain]"
    ),
    "redo": SlashCommand("put back what the last /undo or /rewind took from the files", _redo),
    "diff": SlashCommand("what the last turn changed", diff),
    "copy": SlashCommand("put the last message into the clipboard", copy),
    "new": SlashCommand("begin a new thread", new),
    "resume": SlashCommand("choose a stored thread, or open one", resume, "[TEXT|NUMBER|ID]"),
    "fork": SlashCommand(
        "go on in a copy of this thread, or of a stored one", fork, f"[{ANY}|TEXT|NUMBER|ID]"
    ),
    "name": SlashCommand("name the thread", name, "NAME"),
    "help": SlashCommand("this list", show_help),
    "quit": SlashCommand("leave", leave),
}


class EnteredLines:
    def __init__(self, chat: ChatConversation, home: Path | None, screen: ChatScreen | None = None) -> None:
        self.named = NamedCommands(chat.server, home, [*COMMANDS])
        self._at = SlashContext(chat, self.named, screen)

    async def enter(self, line: str) -> None:
        """Run the command or send the message of a line. Raises Leave."""
        if not line.strip():
            return
        if line.startswith("/") and "/" not in line.split(maxsplit=1)[0][1:]:  # a path is a message
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
