"""Text of others in columns of a terminal, where some characters are two columns wide.

The text is cut, wrapped, and marked by a bar, so that it cannot be mistaken for a row of the chat's own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rich.cells import chop_cells
from rich.console import Console
from rich.text import Text

from app_server.client.command_line import printable

BAR: Final = "│ "
"""Prefix of every row with text of others. No row of the chat begins with it."""

PART_ROWS: Final = 3
"""Maximum number of rows of each part of a question except the first, if there is no room for all."""

FEWEST_ROWS: Final = 3
"""Minimum number of rows of the first part, even on a low terminal."""


def cut_to(text: str, columns: int) -> str:
    """Cut a line to a number of columns; an ellipsis stands for the rest."""
    line = Text(text)
    line.truncate(columns, overflow="ellipsis")
    return line.plain


def last_rows(text: str, columns: int, rows: int, console: Console) -> str:
    """Return the end of the text, wrapped between words."""
    end = printable(text[-2 * columns * rows :]).strip("\n")
    return "\n".join(line.plain for line in Text(end).wrap(console, columns)[-rows:])


@lru_cache(maxsize=32)
def guttered(text: str, columns: int | None = None, most: int | None = None) -> tuple[str, ...]:
    """Return text of others in rows that begin with a bar, so that none of them can be mistaken for a row of the chat.

    Consecutive empty rows become one. If there are more than `most` rows, the first and the last ones are kept, and the
    rows between them are counted. Without columns, lines are not wrapped.
    """
    rows: list[str] = []
    for line in printable(text).strip("\n").replace("\t", "    ").split("\n"):
        for row in chop_cells(line, max(2, columns - len(BAR))) if columns is not None else [line]:
            if row.strip() or (rows and rows[-1]):
                rows.append(row.rstrip())
    if most is None or len(rows) <= most:
        return tuple(f"{BAR}{row}" for row in rows)
    last = most // 3
    head, tail = rows[: most - last - 1], rows[len(rows) - last :]
    left_out = f"┆ {len(rows) - len(head) - len(tail)} rows are left out here"
    return (*(f"{BAR}{row}" for row in head), left_out, *(f"{BAR}{row}" for row in tail))


def question_rows(
    parts: Sequence[tuple[str, str]], columns: int | None = None, rows: int | None = None
) -> list[str]:
    """Return a question in `rows`, or a few more: each part has a label of the chat, and below it the text of
    others.
    """
    others = [guttered(theirs, columns, rows and PART_ROWS) for _, theirs in parts[1:]]
    left = rows and max(FEWEST_ROWS, rows - len(parts) - sum(map(len, others)))
    blocks = [*(guttered(theirs, columns, left) for _, theirs in parts[:1]), *others]
    return [row for (ours, _), block in zip(parts, blocks, strict=True) for row in (ours, *block)]


def hint_rows(hint: str, columns: int) -> list[str]:
    """Return the possible answers in rows, wrapped only between answers, which two spaces separate."""
    whole = hint.replace("  ", "\0").replace(" ", "\xa0").replace("\0", "  ") if "  " in hint else hint
    rows = textwrap.wrap(whole, columns, break_long_words=False, break_on_hyphens=False)
    return [row.replace("\xa0", " ") for row in rows]
