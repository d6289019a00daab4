"""The chat without a terminal, or with one that has no cursor: each line is a turn, and the next line is read when the
turn has ended.

A question of the server takes the next line; at the end of the input it is declined. Text that a person typed before
the question was shown is no answer: a line that was begun earlier is marked as early, and sent after the turn.
"""

from __future__ import annotations

import os
import sys
import termios
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TextIO

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.cli.chat.chat_conversation import ChatConversation
from app_server.cli.chat.event_view import NOTICE
from app_server.cli.chat.open_questions import TOO_EARLY, PendingQuestion
from app_server.cli.chat.slash_commands import EnteredLines, Leave
from app_server.client.failures import AppServerError

READ_SIZE = 1 << 16


class TypedLine(Struct, frozen=True):
    text: str
    early: bool = False
    """Whether it was begun before `mark_early` was called."""


class TypedLines:
    """Lines of stdin. `ended` is set once there are no more. Waiting for a line can be cancelled."""

    def __init__(self, stdin: TextIO | None) -> None:
        """`stdin` is None if it is closed."""
        self._fd = -1 if stdin is None else stdin.fileno()
        self._encoding = "utf-8" if stdin is None else stdin.encoding
        self.ended = stdin is None
        self.typed = not self.ended and os.isatty(self._fd)
        """Whether a person types the lines."""
        self._read = b""
        """Bytes that are no whole line yet, or were not requested."""
        self._early = 0
        """Number of bytes of `_read` that were typed early."""
        self._never_waits = False
        """Whether stdin is a file."""

    async def next(self) -> TypedLine | None:
        """Return the next line; None at the end."""
        while b"\n" not in self._read and not self.ended:
            await self._until_readable()
            data = os.read(self._fd, READ_SIZE)
            self._read += data
            self.ended = not data
        line, end, self._read = self._read.partition(b"\n")
        early, self._early = self._early > 0, max(0, self._early - len(line + end))
        if not line and not end:
            return None
        return TypedLine(line.decode(self._encoding, "replace").removesuffix("\r"), early)

    def mark_early(self) -> None:
        """Read the text that a person has typed so far, including a line that is not entered yet, and mark it as
        early.
        """
        if not self.typed or self.ended:
            return
        before = termios.tcgetattr(self._fd)
        by_key = [*before[:3], before[3] & ~termios.ICANON, *before[4:6], list(before[6])]
        by_key[6][termios.VMIN] = by_key[6][termios.VTIME] = 0
        termios.tcsetattr(self._fd, termios.TCSANOW, by_key)
        try:
            while data := os.read(self._fd, READ_SIZE):
                self._read += data.replace(b"\0", b"")  # an end of input that was typed
        finally:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)
        self._early = len(self._read)

    async def _until_readable(self) -> None:
        if not self._never_waits:
            try:
                await anyio.wait_readable(self._fd)
            except PermissionError:
                self._never_waits = True


QUESTION_ROWS = 16
"""Maximum number of rows of a question, if it might not fit on the screen; then the whole question is printed above."""


TWICE_WITHIN = 2.0
"""Time within which two Ctrl-C leave during a turn, in seconds."""


class InterruptSource(Protocol):
    """A source of Ctrl-C. It calls `on_interrupt`, and ends the chat if that returns False."""

    on_interrupt: Callable[[], bool]


async def in_plain_lines(
    chat: ChatConversation, group: TaskGroup, home: Path | None, interrupts: InterruptSource
) -> None:
    """Chat over stdin and stdout (`chat_session.Frontend`)."""
    plain = PlainChat(chat, home, TypedLines(sys.stdin), time.monotonic)
    interrupts.on_interrupt = lambda: plain.interrupt(group)
    await plain.run()


class LineSource(Protocol):
    """A source of entered lines, as `TypedLines`."""

    @property
    def ended(self) -> bool: ...
    @property
    def typed(self) -> bool: ...
    async def next(self) -> TypedLine | None: ...
    def mark_early(self) -> None: ...


class PlainChat:
    """The chat in plain lines. With `echoes`, lines are shown that nobody has typed."""

    def __init__(
        self,
        chat: ChatConversation,
        home: Path | None,
        typed: LineSource,
        clock: Callable[[], float],
        *,
        echoes: bool = False,
    ) -> None:
        self._chat, self._typed, self._clock, self._echoes = chat, typed, clock, echoes
        self._lines = EnteredLines(chat, home)
        self._kept = deque(chat.first)
        """Lines of the command line, and lines that were typed before a question was shown."""
        self._happened = anyio.Event()
        self._interrupted_at = -TWICE_WITHIN
        chat.asked, chat.changed = self._ask, self._wake

    async def run(self) -> None:
        """Run until the user leaves, or until the input and the last turn have ended."""
        while True:
            await self._until_wanted()
            if self._kept and self._chat.questions.current is None:
                text = self._kept.popleft()
                if self._echoes:
                    self._chat.view.line(f"> {text}", "bold")
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

    def interrupt(self, group: TaskGroup) -> bool:
        """Interrupt the turn and its question. Return False if no turn runs, or if it is the second Ctrl-C, which
        leaves.
        """
        now = self._clock()
        twice, self._interrupted_at = now - self._interrupted_at < TWICE_WITHIN, now
        if not self._typed.typed or twice or not self._chat.running:
            return False
        self._chat.view.line("the turn is interrupted; Ctrl-C again leaves", NOTICE)
        group.start_soon(self._interrupt)
        return True

    async def _interrupt(self) -> None:
        try:
            await self._chat.interrupt()
        except AppServerError as error:  # the turn may have ended by now
            self._chat.view.line(str(error), "dim")

    def _ask(self, question: PendingQuestion) -> None:
        self._chat.view.question(question, QUESTION_ROWS if self._typed.typed else None)
        self._chat.view.line(question.hint, NOTICE)
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
        elif question.reply is None:
            self._ask(question)  # there is another part

    def _wake(self) -> None:
        self._happened.set()
