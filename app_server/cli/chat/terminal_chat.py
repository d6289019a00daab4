"""The chat in a terminal: an input prompt at the bottom, with the output above it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import ObjectReceiveStream, TaskGroup
from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import StdoutProxy

from app_server.cli.chat.chat_conversation import ChatConversation
from app_server.cli.chat.completion import ChatCompleter
from app_server.cli.chat.open_questions import TOO_EARLY, PendingQuestion
from app_server.cli.chat.picker import picker
from app_server.cli.chat.prompt_view import Printable, PromptView, TypedText, history_in
from app_server.cli.chat.slash_commands import EnteredLines, Leave
from app_server.cli.chat.slash_context import Choices
from app_server.cli.chat.terminal_keys import (
    FOCUS_IN,
    FOCUS_OUT,
    NEW_LINE,
    DesktopNotices,
    LentTerminal,
    RawInput,
    reporting,
    typed_ahead,
)
from app_server.client.failures import AppServerError
from app_server.engine.support.home import home_folder

T = TypeVar("T")

REDRAWS_EVERY: Final = 0.05
"""Minimum interval between two redraws, in seconds."""

TWICE_WITHIN: Final = 2.0
"""Time within which two Ctrl-C leave, in seconds."""

MOST_LINES: Final = 100
"""Maximum number of entered lines that wait to be processed."""


async def in_terminal(chat: ChatConversation, group: TaskGroup, home: Path | None) -> None:
    """Chat in a terminal (`chat_session.Frontend`)."""
    await TerminalChat(chat, group, home, RawInput(sys.stdin), time.monotonic, os.environ).run()


class TerminalChat:
    """The prompt, and the picker that replaces it. It is a `slash_commands.ChatScreen`."""

    def __init__(
        self,
        chat: ChatConversation,
        group: TaskGroup,
        home: Path | None,
        keys: RawInput,
        clock: Callable[[], float],
        environment: Mapping[str, str],
    ) -> None:
        self._chat, self._group, self._keys, self._clock = chat, group, keys, clock
        self._lines = EnteredLines(chat, home, self)
        self._interrupted_at = -TWICE_WITHIN
        self._left = False
        self._prompting = anyio.Event()
        """Event that is set while the prompt has the terminal, so that the terminal can be lent."""
        self._picker: Application[Any] | None = None
        """Picker that replaces the prompt. None if no picker is shown."""
        self._picked: Any = None
        self._picker_ended = anyio.Event()
        is_asked = Condition(lambda: chat.questions.current is not None)
        self._view = PromptView(
            chat, lambda: self._session.app.output.get_size(), lambda: self._session.app.is_done
        )
        self._session: PromptSession[str] = PromptSession(
            self._view.prompt,
            multiline=True,
            completer=ChatCompleter(chat, self._lines.named),
            complete_while_typing=~is_asked,  # an answer needs no list, which would take rows of the question
            history=history_in(home),
            key_bindings=chat_bindings(self, is_asked),
            bottom_toolbar=self._view.state,
            prompt_continuation="  ",
            refresh_interval=0.5,
            input=keys,
            input_processors=[Printable()],
            tempfile_suffix=".md",
        )
        self._session.app.min_redraw_interval = REDRAWS_EVERY
        self._session.app.after_render += self._rendered
        self._text = TypedText(self._session.default_buffer, clock, home or home_folder(environment))
        output = self._session.app.output
        self._lent = LentTerminal(keys, output, environment)
        self.notices = DesktopNotices(output, environment)
        chat.changed, chat.asked, chat.ended = self._changed, self._asked, self.notices.ended

    async def run(self) -> None:
        """Run the chat until the user leaves. Lines are processed beside the prompt, so that keys continue to work."""
        ahead = typed_ahead(self._keys.fileno())
        send, receive = anyio.create_memory_object_stream[str](MOST_LINES)
        self._group.start_soon(self._enter_all, receive, name="lines")
        above = StdoutProxy(raw=True, sleep_between_writes=REDRAWS_EVERY)
        with (
            self._keys.raw_mode(),
            reporting(self._session.app.output),
            above,
            redirect_stdout(above),
            redirect_stderr(above),
            send,
        ):
            for first in (*self._chat.first, *ahead):
                await send.send(first)
            while True:
                try:
                    line = await self._next_line()
                except (EOFError, KeyboardInterrupt):
                    return
                if line is not None:
                    await send.send(line)

    async def _next_line(self) -> str | None:
        """Return an entered line; None after the picker was shown. Raises EOFError if the user leaves."""
        if self._left:
            raise EOFError
        if self._picker is not None:
            self._picked, self._picker = await self._picker.run_async(), None
            self._picker_ended.set()
            return None
        line = await self._session.prompt_async(pre_run=self._prompt_begins)
        self._prompting = anyio.Event()
        self._text.empty()
        taken, self._session.app.erase_when_done = self._session.app.erase_when_done, False
        return None if taken else line

    async def _enter_all(self, lines: ObjectReceiveStream[str]) -> None:
        async for line in lines:
            try:
                await self._lines.enter(line)
            except Leave:
                self.leave()
                return

    def leave(self) -> None:
        self._left = True
        prompt = self._session.app
        if prompt.is_running and not prompt.is_done:
            prompt.exit(exception=EOFError)

    # --- replacing the prompt
    async def choose(self, choices: Choices[T]) -> T | None:
        """Show the picker instead of the prompt. The text of the prompt is kept."""
        self._picker, self._picker_ended = picker(choices, self._keys), anyio.Event()
        prompt = self._session.app
        if prompt.is_running and not prompt.is_done:
            self._text.set_aside()
            prompt.erase_when_done = True
            prompt.exit(result="")
        await self._picker_ended.wait()
        picked: T | None = self._picked
        return picked

    async def page(self, text: str) -> None:
        """Show a text in the user's pager, or above the prompt if there is none."""
        await self._prompting.wait()
        if not await self._lent.page(text):
            print(text)  # noqa: T201  above the prompt

    async def copy(self, text: str) -> str:
        return await self._lent.copy(text)

    def put_back(self, text: str) -> None:
        """Insert a text into the prompt, so that the user can change it and send it again."""
        self._text.set_aside(text)
        self._changed()

    def edit(self) -> None:
        """Open the text of the prompt in the user's editor."""
        self._group.start_soon(self._edit)

    async def _edit(self) -> None:
        with self._keys.lend(self._session.app.output):
            await self._text.edit()

    def show_all(self) -> None:
        """Show the full text of what is shown cut, in the pager."""
        if whole := self._view.whole():
            self._group.start_soon(self.page, whole)

    # --- questions, and the text that is typed during them
    def _asked(self, question: PendingQuestion) -> None:
        if not self._view.fits(question):
            self._chat.view.question(question)  # the whole question, above the prompt
        self.notices.asked()
        self._changed()

    def _rendered(self, app: Application[str]) -> None:
        question = self._chat.questions.current
        if question is not None and question.shown_at is None:
            question.shown_at = self._clock()

    def answer(self) -> None:
        """Answer with the text of the prompt. A text that is no answer is put back; an invalid value stays."""
        question, line = self._chat.questions.current, self._session.default_buffer.text
        if question is None:
            return
        early = not question.seen_by(self._text.begun_at)
        problem = TOO_EARLY if early else question.enter(line)
        comes_back = bool(problem and line and (early or question.keys))
        if problem is not None:
            self._chat.view.line(problem + ("; the line comes back afterwards" if comes_back else ""), "red")
        if comes_back:
            self._text.set_aside()
        if comes_back or problem is None:
            self._text.empty()
        if problem is None and question.reply is None and not self._view.fits(question):
            self._chat.view.question(question)  # the next part of the question

    def _prompt_begins(self) -> None:
        self._prompting.set()
        self._put_back()

    def _put_back(self) -> None:
        if self._chat.questions.current is None:
            self._text.put_back()

    def _changed(self) -> None:
        if self._session.app.is_running:
            self._put_back()
        self._session.app.invalidate()

    def interrupt(self) -> None:
        """Empty the prompt and interrupt the turn. The second call within `TWICE_WITHIN` leaves the chat."""
        if self._keys.lent:
            return  # the key is for the other program
        now = self._clock()
        if now - self._interrupted_at < TWICE_WITHIN:
            self.leave()
            return
        self._interrupted_at = now
        self._text.empty()
        if self._chat.running:
            self._group.start_soon(self._interrupt)

    async def _interrupt(self) -> None:
        try:
            await self._chat.interrupt()
        except AppServerError as error:  # the turn may have ended by now
            self._chat.view.line(str(error), "dim")


def chat_bindings(chat: TerminalChat, is_asked: Condition) -> KeyBindings:
    """Return the key bindings of the prompt that differ from those of other prompts."""
    bindings = KeyBindings()
    typing = ~is_asked & ~is_searching
    continues = Condition(lambda: get_app().current_buffer.document.current_line_before_cursor.endswith("\\"))
    bindings.add("enter", filter=is_asked)(lambda event: chat.answer())
    bindings.add("enter", filter=typing)(lambda event: event.current_buffer.validate_and_handle())
    bindings.add("c-g", filter=typing)(lambda event: chat.edit())
    bindings.add("c-o")(lambda event: chat.show_all())
    for key in ("c-c", "<sigint>"):
        bindings.add(key)(lambda event: chat.interrupt())

    @bindings.add("enter", filter=typing & continues)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.delete_before_cursor()
        event.current_buffer.insert_text("\n")

    @bindings.add(NEW_LINE, filter=typing)
    @bindings.add("escape", "enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    for key, in_front in ((FOCUS_IN, True), (FOCUS_OUT, False)):

        @bindings.add(key)
        def _(event: KeyPressEvent, in_front: bool = in_front) -> None:
            chat.notices.in_front = in_front

    return bindings
