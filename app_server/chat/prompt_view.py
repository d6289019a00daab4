"""What the lines at the bottom of the terminal show: the question that waits, or else what streams; the prompt; and
a line with the state of the chat. In the columns and rows that the terminal has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from app_server.chat.conversation import ChatConversation
from app_server.chat.event_view import NOTICE
from app_server.chat.open_questions import PendingQuestion
from app_server.chat.question_rows import cut_to, hint_rows, question_rows
from app_server.client.command_line import printable

STREAMED_ROWS: Final = 8
"""Of what streams so many rows are shown: of a message before its next block is whole, of a command until its end."""

OTHER_ROWS: Final = 3
"""Lines below them."""


class Printable(Processor):
    """Shows what is in the prompt: names of files are completed there, and what others wrote is pasted."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        return Transformation([(part[0], printable(part[1])) for part in fragments])


class PromptView:
    def __init__(self, chat: ChatConversation, size: Callable[[], Size], ended: Callable[[], bool]) -> None:
        """`ended` tells whether the prompt stays as it is, with what was entered."""
        self._chat, self._size, self._ended = chat, size, ended

    def prompt(self) -> StyleAndTextTuples:
        """Show the prompt, below what is asked, or what streams.

        A question is here, so that nothing that others print comes below it.
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
        """Tell whether all of a question can be read in the prompt."""
        return question_rows(question.parts(), self._size().columns) == self.question_rows(question)

    def whole(self) -> str:
        """Return all of what is cut short: the question that waits, or else what commands print."""
        question = self._chat.questions.current
        return printable(
            "\n".join(question_rows(question.parts())) if question else self._chat.view.outputs.whole()
        )

    def state(self) -> str:
        """Show the state of the chat in one line."""
        chat = self._chat
        working = [f"working {chat.elapsed:.0f} s (Ctrl-C interrupts)"] if chat.running else []
        parts = [*working, f"{chat.tokens} tokens", chat.model, chat.approval_policy, chat.sandbox]
        return cut_to(printable(f" {' · '.join(parts)}"), self._size().columns)
