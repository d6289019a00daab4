"""The chat in a terminal: one line to type in at the bottom, with what happens above it."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ObjectReceiveStream, TaskGroup
from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.patch_stdout import StdoutProxy

from app_server.chat.conversation import ChatConversation
from app_server.chat.event_view import cut_to, question_rows
from app_server.chat.open_questions import TOO_EARLY, PendingQuestion
from app_server.chat.slash_commands import COMMANDS, EnteredLines, Leave
from app_server.chat.thread_picker import thread_picker
from app_server.client.command_line import printable
from app_server.client.failures import AppServerError
from protocol.v2.thread import Thread


class RawInput(Vt100Input):
    """prompt_toolkit puts the terminal into cooked mode whenever something is printed above the prompt. A Ctrl-C that
    is pressed then would be a signal instead of a key, and other keys would be echoed into the output.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


STREAMED_ROWS: Final = 8
"""Of a message that streams so many rows are shown before its next block is whole."""

OTHER_ROWS: Final = 3
"""Lines below them."""

REDRAWS_EVERY: Final = 0.05
"""Seconds between two redraws at least."""

TWICE_WITHIN: Final = 2.0
"""Seconds between the two Ctrl-C that leave."""

MOST_LINES: Final = 100
"""That were entered and are not worked on yet."""

HISTORY_FILE: Final = "chat_history"


class ChatCompleter(Completer):
    """Slash commands, and files of the thread's folder behind an `@`."""

    def __init__(self, chat: ChatConversation) -> None:
        self._chat = chat

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text:
            for name, command in COMMANDS.items():
                if name.startswith(text[1:]):
                    yield Completion(f"/{name}", -len(text), display_meta=command.help)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        for completion in self.get_completions(document, complete_event):
            yield completion
        word = document.text_before_cursor.rsplit(maxsplit=1)[-1:] or [""]
        if not word[0].startswith("@") or document.text_before_cursor.endswith(" "):
            return
        params = {"query": word[0][1:], "roots": [str(self._chat.cwd)], "cancellationToken": "chat"}
        try:
            found = await self._chat.server.request_raw("fuzzyFileSearch", params)
        except AppServerError:
            return
        for file in found["files"]:
            yield Completion(file["path"], -len(word[0]), display=printable(file["path"]))


class Printable(Processor):
    """Shows what is in the prompt: names of files are completed there, and what others wrote is pasted."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        return Transformation([(part[0], printable(part[1])) for part in fragments])


async def in_terminal(chat: ChatConversation, group: TaskGroup, home: Path | None) -> None:
    """Chat in a terminal (`chat_session.Frontend`)."""
    await TerminalChat(chat, group, home, RawInput(sys.stdin), time.monotonic).run()


class TerminalChat:
    def __init__(
        self,
        chat: ChatConversation,
        group: TaskGroup,
        home: Path | None,
        keys: RawInput,
        clock: Callable[[], float],
    ) -> None:
        self._chat, self._group, self._keys, self._clock = chat, group, keys, clock
        self._lines = EnteredLines(chat, self._choose)
        self._interrupted_at = -TWICE_WITHIN
        self._left = False
        self._picker: Application[Thread | None] | None = None
        """Takes the place of the prompt."""
        self._picked: Thread | None = None
        self._picker_ended = anyio.Event()
        self._draft = ""
        """What was typed when the picker took the place of the prompt, or a question that it was no answer to."""
        self._begun_at: float | None = None
        """When what is in the prompt was begun, by the clock; None: there is nothing."""
        self._is_asked = Condition(lambda: chat.questions.current is not None)
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            completer=ChatCompleter(chat),
            complete_while_typing=~self._is_asked,  # an answer needs no list, whose rows are the question's
            history=_history(home),
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            refresh_interval=0.5,
            input=keys,
            input_processors=[Printable()],
        )
        self._session.app.min_redraw_interval = REDRAWS_EVERY
        self._session.app.after_render += self._rendered
        self._session.default_buffer.on_text_changed += self._typed
        chat.changed, chat.asked = self._changed, self._asked

    async def run(self) -> None:
        """Run the chat until the user leaves; lines are worked on beside the prompt, so that keys still work."""
        send, receive = anyio.create_memory_object_stream[str](MOST_LINES)
        self._group.start_soon(self._enter_all, receive, name="lines")
        above = StdoutProxy(raw=True, sleep_between_writes=REDRAWS_EVERY)
        with self._keys.raw_mode(), above, redirect_stdout(above), redirect_stderr(above), send:
            while True:
                try:
                    line = await self._next_line()
                except (EOFError, KeyboardInterrupt):
                    return
                if line is not None:
                    await send.send(line)

    async def _next_line(self) -> str | None:
        """Return a line that was entered, None after the picker was shown. Raises EOFError if the user leaves."""
        if self._left:
            raise EOFError
        if self._picker is not None:
            self._picked, self._picker = await self._picker.run_async(), None
            self._picker_ended.set()
            return None
        line, self._begun_at = await self._session.prompt_async(pre_run=self._put_back), None
        taken, self._session.app.erase_when_done = self._session.app.erase_when_done, False
        return None if taken else line

    async def _choose(self, threads: Sequence[Thread]) -> Thread | None:
        """Show the picker in the place of the prompt; what was typed there is kept."""
        self._picker, self._picker_ended = thread_picker(threads, self._keys), anyio.Event()
        prompt = self._session.app
        if prompt.is_running and not prompt.is_done:
            self._set_aside()
            prompt.erase_when_done = True
            prompt.exit(result="")
        await self._picker_ended.wait()
        return self._picked

    async def _enter_all(self, lines: ObjectReceiveStream[str]) -> None:
        async for line in lines:
            try:
                await self._lines.enter(line)
            except Leave:
                self._leave()
                return

    def _leave(self) -> None:
        self._left = True
        prompt = self._session.app
        if prompt.is_running and not prompt.is_done:
            prompt.exit(exception=EOFError)

    # --- questions, and what is typed meanwhile
    def _asked(self, question: PendingQuestion) -> None:
        size = self._session.app.output.get_size()
        if question_rows(question.parts(), size.columns) != self._question_rows(question):
            self._chat.view.question(question)  # all of it, above the prompt
        self._changed()

    def _rendered(self, app: Application[str]) -> None:
        question = self._chat.questions.current
        if question is not None and question.shown_at is None:
            question.shown_at = self._clock()

    def _typed(self, buffer: Buffer) -> None:
        if not buffer.text:
            self._begun_at = None
        elif self._begun_at is None:
            self._begun_at = self._clock()

    def _answer(self, question: PendingQuestion, line: str) -> None:
        """Answer with what is in the prompt. What is no answer comes back when nothing is asked."""
        if question.seen_by(self._clock() if self._begun_at is None else self._begun_at):
            problem = question.enter(line)
        else:
            problem = TOO_EARLY
        if problem is not None and line:
            self._set_aside()
            self._chat.view.line(f"{problem}; the line comes back afterwards", "red")
        elif problem is not None:
            self._chat.view.line(problem, "red")
        self._session.default_buffer.reset()
        self._begun_at = None

    def _set_aside(self) -> None:
        self._draft = " ".join(filter(None, (self._draft, self._session.default_buffer.text)))

    def _put_back(self) -> None:
        """Put what was set aside into a prompt that is empty and answers nothing."""
        buffer = self._session.default_buffer
        if self._draft and self._chat.questions.current is None and not buffer.text:
            buffer.insert_text(self._draft)
            self._draft = ""

    def _changed(self) -> None:
        if self._session.app.is_running:
            self._put_back()
        self._session.app.invalidate()

    # --- what is shown
    def _prompt(self) -> StyleAndTextTuples:
        """Show the prompt, below what is asked, or the part of a message that streams and is no whole block yet.

        A question is here, so that nothing that others print comes below it.
        """
        question = self._chat.questions.current
        if question is not None:
            rows = "\n".join(self._question_rows(question))
            return [("fg:ansiyellow bold", rows), ("", f"\n{question.hint} ? ")]
        mark = "… " if self._chat.running else "> "
        size = self._session.app.output.get_size()
        streaming = self._chat.view.unfinished(
            size.columns, max(1, min(STREAMED_ROWS, size.rows - OTHER_ROWS))
        )
        if not streaming or self._session.app.is_done:
            return [("", mark)]
        return [("fg:ansibrightblack", streaming), ("", f"\n{mark}")]

    def _question_rows(self, question: PendingQuestion) -> list[str]:
        size = self._session.app.output.get_size()
        hint = 1 + (len(question.hint) + OTHER_ROWS) // size.columns
        return question_rows(question.parts(), size.columns, max(1, size.rows - OTHER_ROWS - hint))

    def _toolbar(self) -> str:
        chat = self._chat
        working = [f"working {chat.elapsed:.0f} s (Ctrl-C interrupts)"] if chat.running else []
        parts = [*working, f"{chat.tokens} tokens", chat.model, chat.approval_policy, chat.sandbox]
        return cut_to(printable(f" {' · '.join(parts)}"), self._session.app.output.get_size().columns)

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("enter", filter=self._is_asked)
        def _(event: KeyPressEvent) -> None:
            question = self._chat.questions.current
            if question is not None:
                self._answer(question, event.current_buffer.text)

        @bindings.add("c-c")
        @bindings.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            now = self._clock()
            if now - self._interrupted_at < TWICE_WITHIN:
                self._leave()
                return
            self._interrupted_at = now
            event.current_buffer.reset()
            if self._chat.running:
                self._group.start_soon(self._interrupt)

        return bindings

    async def _interrupt(self) -> None:
        try:
            await self._chat.interrupt()
        except AppServerError as error:  # the turn may have ended meanwhile
            self._chat.view.line(str(error), "dim")


def _history(home: Path | None) -> History:
    """Open the file of what was said in earlier chats; only the user may read it."""
    if home is None:
        return InMemoryHistory()
    path = home / HISTORY_FILE
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
