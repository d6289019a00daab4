"""What a person types in the prompt: when it was begun, what has to wait for its turn, and what was said earlier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

HISTORY_FILE: Final = "chat_history"


class TypedText:
    """The text of a buffer, and a draft that waits: typed when something else took the place of the prompt, or when a
    question came that it was no answer to.
    """

    def __init__(self, buffer: Buffer, clock: Callable[[], float]) -> None:
        self._buffer, self._clock = buffer, clock
        self._draft = ""
        self._begun_at: float | None = None
        buffer.on_text_changed += self._typed

    @property
    def begun_at(self) -> float:
        """Return when what is there was begun, by the clock: now, where there is nothing."""
        return self._clock() if self._begun_at is None else self._begun_at

    def _typed(self, buffer: Buffer) -> None:
        if not buffer.text:
            self._begun_at = None
        elif self._begun_at is None:
            self._begun_at = self._clock()

    def empty(self) -> None:
        self._buffer.reset()
        self._begun_at = None

    def set_aside(self, text: str | None = None) -> None:
        """Keep what is there, or another text, for later."""
        text = self._buffer.text if text is None else text
        self._draft = " ".join(filter(None, (self._draft, text)))

    def put_back(self) -> None:
        """Put what was set aside into the prompt, if nothing is there."""
        if self._draft and not self._buffer.text:
            self._buffer.insert_text(self._draft)
            self._draft = ""


def history_in(home: Path | None) -> History:
    """Open the file of what was said in earlier chats; only the user may read it."""
    if home is None:
        return InMemoryHistory()
    path = home / HISTORY_FILE
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
