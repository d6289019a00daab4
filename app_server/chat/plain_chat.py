"""The chat where stdin or stdout is no terminal, or one without cursor: a line is a turn, and the next one is read when
the turn has ended.

A question of the server takes the next line; at the end of the input it is declined. What a person typed before the
question was shown is no answer: it is said after the turn.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from app_server.chat.chat_setup import ChatSetup
from app_server.chat.conversation import ChatConversation
from app_server.chat.entered_lines import EnteredLines
from app_server.chat.open_questions import TOO_EARLY, PendingQuestion
from app_server.chat.slash_commands import Leave
from app_server.chat.typed_lines import TypedLine, TypedLines

QUESTION_ROWS = 16
"""Of what is asked, where it might not fit on the screen; then all of it is above."""


async def in_plain_lines(chat: ChatConversation, group: TaskGroup, setup: ChatSetup) -> None:
    """The frontend for stdin and stdout (`chat_session.Frontend`)."""
    await PlainChat(chat, TypedLines(sys.stdin), time.monotonic).run()


class PlainChat:
    def __init__(self, chat: ChatConversation, typed: TypedLines, clock: Callable[[], float]) -> None:
        self._chat, self._typed, self._clock = chat, typed, clock
        self._lines = EnteredLines(chat)
        self._kept: deque[str] = deque()
        """Lines that were typed before a question was shown."""
        self._happened = anyio.Event()
        chat.asked, chat.changed = self._ask, self._wake

    async def run(self) -> None:
        """Until the user leaves, or the input and the last turn have ended."""
        while True:
            await self._until_wanted()
            if self._kept and self._chat.questions.current is None:
                text = self._kept.popleft()
            else:
                line = await self._typed.next()
                if line is None and not self._chat.running:
                    return
                if line is None:
                    continue
                if (question := self._chat.questions.current) is not None:
                    self._answer(question, line)
                    continue
                text = line.text
            try:
                await self._lines.enter(text)
            except Leave:
                return

    async def _until_wanted(self) -> None:
        """Wait for the end of the turn, or for a question that a line can answer."""
        while self._chat.running:
            question = self._chat.questions.current
            if question is not None and not self._typed.ended:
                return
            if question is not None:
                question.decline()
            self._happened = anyio.Event()
            await self._happened.wait()

    def _ask(self, question: PendingQuestion) -> None:
        self._chat.view.question(question, QUESTION_ROWS if self._typed.typed else None)
        self._chat.view.line(question.hint, "yellow")
        self._typed.mark_early()
        question.shown_at = self._clock()
        self._wake()

    def _answer(self, question: PendingQuestion, line: TypedLine) -> None:
        if line.early or (self._typed.typed and not question.seen_by(self._clock())):
            self._kept.append(line.text)
            problem: str | None = f"{TOO_EARLY}; it is said after the turn"
        else:
            problem = question.enter(line.text)
        if problem is not None:
            self._chat.view.line(problem, "red")

    def _wake(self) -> None:
        self._happened.set()
