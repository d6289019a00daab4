"""The chat where stdin or stdout is no terminal: a line is a turn, and the next one is read when the turn has ended.

A question of the server takes the next line; at the end of the input it is declined.
"""

from __future__ import annotations

import sys
from typing import TextIO

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from app_server.chat.chat_setup import ChatSetup
from app_server.chat.conversation import ChatConversation
from app_server.chat.entered_lines import EnteredLines
from app_server.chat.slash_commands import Leave

LOOKS_EVERY = 0.02
"""Seconds between two looks for a question while a turn runs."""


async def in_plain_lines(chat: ChatConversation, group: TaskGroup, setup: ChatSetup) -> None:
    """The frontend for stdin and stdout (`chat_session.Frontend`)."""
    await plain_chat(chat, sys.stdin)


async def plain_chat(chat: ChatConversation, stdin: TextIO) -> None:
    lines = EnteredLines(chat)
    ended = False
    while not ended:
        line = await anyio.to_thread.run_sync(stdin.readline, abandon_on_cancel=True)
        ended = not line
        try:
            if line:
                await lines.enter(line.rstrip("\n"))
            await _until_asked(chat, decline=ended)
        except Leave:
            return


async def _until_asked(chat: ChatConversation, *, decline: bool) -> None:
    """Wait for the end of the turn, or for a question."""
    while chat.running:
        question = chat.questions.current
        if question is not None and not decline:
            return
        if question is not None:
            question.decline()
        with anyio.move_on_after(LOOKS_EVERY):
            await chat.until_idle()
