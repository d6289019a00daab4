"""The chat in a terminal: one line to type in at the bottom, with what happens above it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ObjectReceiveStream, TaskGroup
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from app_server.chat.conversation import ChatConversation
from app_server.chat.entered_lines import EnteredLines
from app_server.chat.open_questions import KEYS
from app_server.chat.slash_commands import COMMANDS, Leave
from app_server.client.failures import AppServerError

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
            yield Completion(file["path"], -len(word[0]))


class TerminalChat:
    def __init__(self, chat: ChatConversation, group: TaskGroup, home: Path | None) -> None:
        self._chat, self._group = chat, group
        self._lines = EnteredLines(chat)
        self._interrupted_at = 0.0
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            completer=ChatCompleter(chat),
            complete_while_typing=True,
            history=_history(home),
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            refresh_interval=0.5,
            enable_history_search=True,
        )

    async def run(self) -> None:
        """Until the user leaves. Lines are worked on beside the prompt, so that keys are always taken."""
        send, receive = anyio.create_memory_object_stream[str](MOST_LINES)
        self._group.start_soon(self._enter_all, receive, name="lines")
        with patch_stdout(raw=True), send:
            while True:
                try:
                    await send.send(await self._session.prompt_async())
                except (EOFError, KeyboardInterrupt):
                    return

    async def _enter_all(self, lines: ObjectReceiveStream[str]) -> None:
        async for line in lines:
            try:
                await self._lines.enter(line)
            except Leave:
                self._session.app.exit(exception=EOFError)
                return

    def _prompt(self) -> str:
        question = self._chat.questions.current
        if question is None:
            return "… " if self._chat.running else "> "
        return f"{question.hint} ? "

    def _toolbar(self) -> str:
        chat = self._chat
        working = f"working {chat.elapsed:.0f} s (Ctrl-C interrupts) · " if chat.running else ""
        return f" {working}{chat.model} · {chat.approval_policy} · {chat.sandbox} · {chat.tokens} tokens"

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        @Condition
        def takes_key() -> bool:
            question = self._chat.questions.current
            return question is not None and bool(question.keys) and not self._session.default_buffer.text

        for key in KEYS:

            @bindings.add(key, filter=takes_key, eager=True)
            def _(event: KeyPressEvent, key: str = key) -> None:
                question = self._chat.questions.current
                if question is not None:
                    question.press(key)

        @bindings.add("c-c")
        def _(event: KeyPressEvent) -> None:
            now = time.monotonic()
            if now - self._interrupted_at < TWICE_WITHIN:
                event.app.exit(exception=EOFError)
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
    """What was said in earlier chats; readable only by the user."""
    if home is None:
        return InMemoryHistory()
    path = home / HISTORY_FILE
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
