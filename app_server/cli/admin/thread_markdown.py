"""A thread as Markdown: the messages, the commands and how they ended, and the changes. Pure.

Most of the text comes from a model. It is shown as it was written, except for parts on which a viewer would act: HTML,
images that are loaded from elsewhere, and links that lead neither to the web nor to a file beside this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from app_server.client.command_line import printable
from app_server_protocol.v2 import items
from app_server_protocol.v2.item_parts import ImageUserInput, LocalImageUserInput, TextUserInput, UserInput
from app_server_protocol.v2.thread import Thread


def as_markdown(thread: Thread, facts: Mapping[str, str]) -> str:
    """Return the thread as Markdown. Control characters are shown as `�`, because the text may be read in a
    terminal.
    """
    title = " ".join((thread.name or thread.preview or thread.id).split())
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    blocks = [inert(f"# {title}"), inert(listed)]
    for turn in thread.turns:
        for item in turn.items:
            blocks += _item(item)
        if turn.error is not None:
            blocks.append(inert(f"**The turn failed**: {turn.error.message}"))
    return printable("\n\n".join(block.strip("\n") for block in blocks))


def _item(item: items.ThreadItem) -> Iterator[str]:
    match item:
        case items.UserMessageThreadItem():
            yield "## User"
            yield from map(_input, item.content)
        case items.AgentMessageThreadItem(text=text):
            yield from ("## Assistant", inert(text))
        case items.PlanThreadItem(text=text):
            yield from ("## Plan", inert(text))
        case items.ExitedReviewModeThreadItem(review=text):
            yield from ("## Review", inert(text))
        case items.ContextCompactionThreadItem():
            yield "The history up to here was replaced by a summary."
        case _:
            yield from _call(item)


def _call(item: items.ThreadItem) -> Iterator[str]:
    """Yield the actions of an item. There are none for reasoning, and for items that only other servers make."""
    match item:
        case items.CommandExecutionThreadItem():
            ended = item.status if item.exit_code is None else f"exit {item.exit_code}"
            yield f"Ran, in {_name(item.cwd)} ({ended}):"
            yield _fenced(f"$ {item.command}\n{item.aggregated_output or ''}", "console")
        case items.FileChangeThreadItem():
            for change in item.changes:
                yield f"Changed {_name(change.path)} ({change.kind.type}, {item.status}):"
                yield _fenced(change.diff, "diff")
        case items.McpToolCallThreadItem():
            yield f"Called {_name(f'{item.server}.{item.tool}')} ({item.status}):"
            yield _fenced(json.dumps(item.arguments, indent=2, ensure_ascii=False), "json")
        case items.DynamicToolCallThreadItem():
            yield f"Called {_name(item.tool)} ({item.status})."
        case items.WebSearchThreadItem():
            yield inert(f"Searched the web: {item.query}")
        case items.ImageViewThreadItem():
            yield f"Looked at {_name(item.path)}."
        case _:
            return


def _input(part: UserInput) -> str:
    match part:
        case TextUserInput(text=text):
            return inert(text)
        case LocalImageUserInput(path=path):
            return f"Picture: {_name(path)}"
        case ImageUserInput():
            return "A picture."
        case _:
            return _name(part.type)


def _fenced(text: str, language: str) -> str:
    """Return a text in a fence with more backticks than the text has in a row."""
    text = printable(text)
    longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"


_FENCE: Final = re.compile(r"(`{3,}(?!.*`)|~{3,})")
_INDENTED_FENCE: Final = re.compile(r" {1,3}(?=`{3}|~{3})")
_CODE: Final = re.compile(r"(?<![\\`])(`+)(?!`)(?:.*?[^`])?\1(?!`)")
_HARMLESS: Final = r"(?:(?i:https?://|mailto:)|[#./]|[\w-]+[./)#])"
"""Pattern of the begin of an address of a page, or of a file beside this one."""
_ACTIVE: Final = re.compile(rf"<|!(?=\[)|\](?=\()(?!\({_HARMLESS})|(?<=\]):(?![ \t]*{_HARMLESS})")


def inert(text: str) -> str:
    """Return Markdown without active parts, whose code blocks are closed at its end.

    Text that every viewer reads as code stays unchanged: a fence that begins its line, and text between backticks of
    one line, if no earlier line of its paragraph has left backticks open. Other fences are shown as text: it is not
    known here whether a fence belongs to a list, and one that does not would exchange inside and outside.
    """
    lines: list[str] = []
    fence = ""
    steady = True
    """Whether no earlier line of this paragraph has left backticks open."""
    for line in printable(text).split("\n"):
        opened = _FENCE.match(line)
        if fence:
            if re.fullmatch(rf" {{0,3}}{re.escape(fence)}{fence[0]}*[ \t]*", line):
                fence = ""
            lines.append(line)
        elif opened is not None:
            fence, steady = opened[1], True
            lines.append(line)
        else:
            steady = steady or not line.strip()
            shown, steady = _inert_line(line, code=steady)
            lines.append(shown)
    return "\n".join([*lines, fence] if fence else lines)


def _inert_line(line: str, *, code: bool) -> tuple[str, bool]:
    """Return the line, and whether all backticks up to its end are closed. Without `code`, no part of it is code."""
    parts: list[str] = []
    at = 0
    if (indented := _INDENTED_FENCE.match(line)) is not None:
        at, code = indented.end() + 1, False
        parts += (line[: indented.end()], f"&#{ord(line[indented.end()])};")
    for span in _CODE.finditer(line, at):
        between = line[at : span.start()]
        if "`" in between:  # this backtick may have opened what the next one closes
            code = False
        parts += (_escaped(between), span[0] if code else _escaped(span[0]))
        at = span.end()
    return "".join([*parts, _escaped(line[at:])]), code and "`" not in line[at:]


def _escaped(text: str) -> str:
    """Write active characters as entities: a backslash would be undone by a preceding one."""
    return _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", text)


def _name(text: str) -> str:
    """Return a name as code, whatever characters it has."""
    shown = " ".join(text.split()).replace("`", "'")
    return f"`{shown}`"
