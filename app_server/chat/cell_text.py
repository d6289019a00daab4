"""Text in the columns of a terminal, in which some characters are two columns wide."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def cut_to(text: str, columns: int) -> str:
    """As much of a line as fits; an ellipsis stands for the rest."""
    line = Text(text)
    line.truncate(columns, overflow="ellipsis")
    return line.plain


def last_rows(text: str, columns: int, rows: int, console: Console) -> str:
    """The end of the text, wrapped between words."""
    return "\n".join(line.plain for line in Text(text).wrap(console, columns)[-rows:])
