"""The lines at the bottom of the terminal, and the text that a person types there.

The lines show, in the columns and rows that the terminal has: the pending question, or else the streaming output; the
prompt; a line with the state of the chat.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from app_server.cli.chat.chat_conversation import ChatConversation
from app_server.cli.chat.event_view import NOTICE
from app_server.cli.chat.open_questions import PendingQuestion
from app_server.cli.chat.question_rows import cut_to, hint_rows, question_rows
from app_server.client.command_line import printable
from app_server.engine.support.private_folders import private_folder
from app_server.server.bootstrap.standard_streams import complain

HISTORY_FILE: Final = "chat_history"


class TypedText:
    """The text of a buffer, and a draft: text that was set aside when the picker replaced the prompt, or when a
    question came to which it was no answer.
    """

    def __init__(self, buffer: Buffer, clock: Callable[[], float], home: str | Path) -> None:
        """`home` is the parent folder of the file for the user's editor."""
        self._buffer, self._clock, self._home = buffer, clock, home
        self._draft = ""
        self._begun_at: float | None = None
        buffer.on_text_changed += self._typed

    @property
    def begun_at(self) -> float:
        """The time when the current text was begun, by the clock. The current time if there is no text."""
        return self._clock() if self._begun_at is None else self._begun_at

    def _typed(self, buffer: Buffer) -> None:
        if not buffer.text:
            self._begun_at = None
        elif self._begun_at is None:
            self._begun_at = self._clock()

    async def edit(self) -> None:
        """Open the text in the user's editor, in a folder that only the user can write: in the usual folder for
        temporary files commands could change the user's text.
        """
        usual = tempfile.tempdir
        try:
            with private_folder(self._home, "draft") as tempfile.tempdir:
                edited = self._buffer.open_in_editor()  # the file is made before this call returns
                tempfile.tempdir = usual
                await edited
        except OSError as error:
            complain("app-server chat", f"no draft can be kept in {self._home}: {error.strerror or error}")
        finally:
            tempfile.tempdir = usual

    def empty(self) -> None:
        self._buffer.reset()
        self._begun_at = None

    def set_aside(self, text: str | None = None) -> None:
        """Keep the current text, or another one, as a draft."""
        text = self._buffer.text if text is None else text
        self._draft = " ".join(filter(None, (self._draft, text)))

    def put_back(self) -> None:
        """Insert the draft into the prompt, if the prompt is empty."""
        if self._draft and not self._buffer.text:
            self._buffer.insert_text(self._draft)
            self._draft = ""


def history_in(home: Path | None) -> History:
    """Open the file with the input of earlier chats; only the user may read it."""
    if home is None:
        return InMemoryHistory()
    path = home / HISTORY_FILE
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


STREAMED_ROWS: Final = 8
"""Maximum number of rows of streaming output: of a message before its next block is complete, of a command until its
end.
"""

OTHER_ROWS: Final = 3
"""Number of lines below the streaming output."""


class Printable(Processor):
    """Makes the text of the prompt printable: completed file names and pasted text come from others."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        return Transformation([(part[0], printable(part[1])) for part in fragments])


class PromptView:
    def __init__(self, chat: ChatConversation, size: Callable[[], Size], ended: Callable[[], bool]) -> None:
        """`ended` returns whether the prompt stays on the screen with the entered text."""
        self._chat, self._size, self._ended = chat, size, ended

    def prompt(self) -> StyleAndTextTuples:
        """Return the prompt, below the pending question, or the streaming output.

        The question is part of the prompt, so that no output of others appears below it.
        """
        question, size = self._chat.questions.current, self._size()
        if question is not None:
            rows = "\n".join(self.question_rows(question))
            hint = "\n".join(self._hint_rows(question))
            return [(f"fg:ansi{NOTICE} bold", rows), ("", f"\n{hint} ? ")]
        mark = "… " if self._chat.running else "> "
        rows_left = max(1, min(STREAMED_ROWS, size.rows - OTHER_ROWS))
        streaming = self._chat.view.unfinished(size.columns, rows_left)
        if not streaming or self._ended():
            return [("", mark)]
        return [("dim", streaming), ("", f"\n{mark}")]

    def question_rows(self, question: PendingQuestion) -> list[str]:
        """Return the rows of a question, as many as there is room for."""
        size = self._size()
        rows = size.rows - OTHER_ROWS - len(self._hint_rows(question))
        return question_rows(question.parts(), size.columns, max(1, rows))

    def _hint_rows(self, question: PendingQuestion) -> list[str]:
        size = self._size()
        is_long = len(question_rows(question.parts(), size.columns)) >= size.rows - OTHER_ROWS
        hint = f"{question.hint}  [Ctrl-O] all of it" if is_long else question.hint
        return hint_rows(hint, size.columns - OTHER_ROWS)

    def fits(self, question: PendingQuestion) -> bool:
        """Return whether a whole question is readable in the prompt."""
        return question_rows(question.parts(), self._size().columns) == self.question_rows(question)

    def whole(self) -> str:
        """Return the full text that is shown cut: the pending question, or else the output of commands."""
        question = self._chat.questions.current
        return printable(
            "\n".join(question_rows(question.parts())) if question else self._chat.view.outputs.whole()
        )

    def state(self) -> str:
        """Return the state of the chat in one line."""
        chat = self._chat
        working = [f"working {chat.elapsed:.0f} s (Ctrl-C interrupts)"] if chat.running else []
        parts = [*working, f"{chat.tokens} tokens", chat.model, chat.approval_policy, chat.sandbox]
        return cut_to(printable(f" {' · '.join(parts)}"), self._size().columns)
