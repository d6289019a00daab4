"""Slash commands about the thread: its turns and what they changed, and other threads to go on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app_server.chat.choices import PickerRow
from app_server.chat.event_view import user_text
from app_server.chat.slash_context import SlashCommand, SlashContext
from app_server.client.options import ListOptions
from protocol.v2 import items
from protocol.v2.thread import Thread

LISTED: Final = 20
"""Threads that are listed at once where there is no picker."""

OFFERED: Final = 200
"""Threads among which a picker chooses: the newest ones."""

ANY: Final = "?"
"""The argument of `/fork` that lets the user choose."""


async def compact(at: SlashContext, argument: str) -> None:
    await at.chat.thread.compact()
    at.print("the history was replaced by a summary", "dim")


async def review(at: SlashContext, argument: str) -> None:
    custom = {"type": "custom", "instructions": argument}
    target = custom if argument else {"type": "uncommittedChanges"}
    await at.chat.server.request_raw("review/start", {"threadId": at.chat.thread.id, "target": target})


async def undo(at: SlashContext, argument: str) -> None:
    """Take back the last turn, and show it: what was said comes back into the prompt."""
    turns = (await at.chat.thread.read()).turns
    if not turns:
        at.print("there is no turn to take back")
        return
    last = turns[-1]
    params = {"threadId": at.chat.thread.id, "beforeTurnId": last.id}
    await at.chat.server.request_raw("thread/revert", params)
    said = [user_text(item) for item in last.items if isinstance(item, items.UserMessageThreadItem)]
    at.print("the last turn is taken back:")
    for text in said:
        at.print(f"> {text}", "bold")
    files = [
        each for item in last.items if isinstance(item, items.FileChangeThreadItem) for each in item.changes
    ]
    for change in files:
        at.print(f"  {change.kind.type} {change.path}: the file is as the turn left it")
    if at.screen is not None:
        at.screen.put_back("\n".join(said))


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
    """Offer a choice among threads (all, or those with a text), or open the one with an id or a listed number."""
    thread_id = await _chosen(at, argument)
    if thread_id is not None:
        await at.chat.resume(thread_id)


async def fork(at: SlashContext, argument: str) -> None:
    """Go on in a copy of the thread, or of one that is chosen as `/resume` does it."""
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
    """Return the id of the thread that is meant, or chosen among those with the text."""
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
    """Return the thread's name, or the beginning of what was said, in one line."""
    return " ".join((thread.name or thread.preview or "(nothing said)").split())


THREAD_COMMANDS: Final[Mapping[str, SlashCommand]] = {
    "compact": SlashCommand("replace the history by a summary", compact),
    "review": SlashCommand("review uncommitted changes, or what you say", review, "[WHAT]"),
    "undo": SlashCommand("take back the last turn, and show it", undo),
    "diff": SlashCommand("what the last turn changed", diff),
    "copy": SlashCommand("put the last message into the clipboard", copy),
    "new": SlashCommand("begin a new thread", new),
    "resume": SlashCommand("choose a stored thread, or open one", resume, "[TEXT|NUMBER|ID]"),
    "fork": SlashCommand(
        "go on in a copy of this thread, or of a stored one", fork, f"[{ANY}|TEXT|NUMBER|ID]"
    ),
    "name": SlashCommand("name the thread", name, "NAME"),
}
