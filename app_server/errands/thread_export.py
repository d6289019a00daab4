"""A stored thread as Markdown: who said what, what was run and how it ended, what was changed. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from app_server.client.command_line import printable
from protocol.v2 import items as wire
from protocol.v2.item_parts import ImageUserInput, LocalImageUserInput, TextUserInput, UserInput
from protocol.v2.thread import Thread


def as_markdown(thread: Thread, facts: Mapping[str, str]) -> str:
    """Write the thread. Control characters are shown as `�`: the text may be read in a terminal."""
    title = " ".join((thread.name or thread.preview or thread.id).split())
    blocks = [f"# {title}", "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    for turn in thread.turns:
        for item in turn.items:
            blocks += _item(item)
        if turn.error is not None:
            blocks.append(f"**The turn failed**: {turn.error.message}")
    return printable("\n\n".join(block.strip("\n") for block in blocks))


def _item(item: wire.ThreadItem) -> Iterator[str]:
    match item:
        case wire.UserMessageThreadItem():
            yield "## User"
            yield from map(_input, item.content)
        case wire.AgentMessageThreadItem(text=text):
            yield from ("## Assistant", text)
        case wire.PlanThreadItem(text=text):
            yield from ("## Plan", text)
        case wire.ExitedReviewModeThreadItem(review=text):
            yield from ("## Review", text)
        case wire.ContextCompactionThreadItem():
            yield "The history up to here was replaced by a summary."
        case _:
            yield from _call(item)


def _call(item: wire.ThreadItem) -> Iterator[str]:
    """Write what was done; nothing for what was only thought, and for items that only other servers make."""
    match item:
        case wire.CommandExecutionThreadItem():
            ended = item.status if item.exit_code is None else f"exit {item.exit_code}"
            yield f"Ran, in `{item.cwd}` ({ended}):"
            yield _fenced(f"$ {item.command}\n{item.aggregated_output or ''}", "console")
        case wire.FileChangeThreadItem():
            for change in item.changes:
                yield f"Changed `{change.path}` ({change.kind.type}, {item.status}):"
                yield _fenced(change.diff, "diff")
        case wire.McpToolCallThreadItem():
            yield f"Called `{item.server}.{item.tool}` ({item.status}):"
            yield _fenced(json.dumps(item.arguments, indent=2, ensure_ascii=False), "json")
        case wire.DynamicToolCallThreadItem():
            yield f"Called `{item.tool}` ({item.status})."
        case wire.WebSearchThreadItem():
            yield f"Searched the web: {item.query}"
        case wire.ImageViewThreadItem():
            yield f"Looked at `{item.path}`."
        case _:
            return


def _input(part: UserInput) -> str:
    match part:
        case TextUserInput(text=text):
            return text
        case LocalImageUserInput(path=path):
            return f"Picture: `{path}`"
        case ImageUserInput():
            return "A picture."
        case _:
            return f"`{part.type}`"


def _fenced(text: str, language: str) -> str:
    """Fence a text with more backticks than it has in a row."""
    longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
