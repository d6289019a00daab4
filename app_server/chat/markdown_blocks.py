"""Cuts streamed Markdown into blocks that can be shown: a paragraph, a list, a fenced piece of code at a time.

And shows them whole: Markdown may style what a model says, and hide nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from rich.cells import cell_len
from rich.markdown import Markdown
from rich.syntax import Syntax

from app_server.client.command_line import printable

FENCES = ("```", "~~~")

CODE_THEME: Final = "ansi_light"
"""The plain colours of the terminal, which can be read on dark and on light ones; bright ones cannot."""

PARSER: Final = (
    MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")
)
"""HTML and definitions of links, which are left out where they are rendered, are text here."""

INDENTS: Final = {"blockquote_open": 4, "bullet_list_open": 3, "ordered_list_open": 12}
"""Columns that each takes at most from what is in it."""

FEWEST_COLUMNS: Final = 20
"""That must be left for what is in the innermost of them."""


class MarkdownBlocks(Struct):
    """The blocks of one message."""

    _line: str = ""
    _block: str = ""
    _fence: str | None = None
    """The mark that closes the open piece of code."""

    @property
    def unfinished(self) -> str:
        """Return what came since the last block that is whole."""
        return self._block + self._line

    def feed(self, text: str) -> list[str]:
        """Return the blocks that `text` completes."""
        done: list[str] = []
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            done += self._take(line)
        return done

    def flush(self) -> list[str]:
        """Return what is left at the end of the message."""
        done = self._take(self._line) if self._line else []
        self._line = ""
        rest, self._block, self._fence = self._block, "", None
        return [*done, rest] if rest.strip() else done

    def _take(self, line: str) -> list[str]:
        stripped = line.strip()
        mark = next((each for each in FENCES if stripped.startswith(each)), None)
        if self._fence is not None:
            self._block += line + "\n"
            if mark == self._fence and stripped == mark:
                return self._end()
            return []
        if mark is not None:
            self._fence = mark
            self._block += line + "\n"
            return []
        if not stripped:
            return self._end()
        self._block += line + "\n"
        return []

    def _end(self) -> list[str]:
        block, self._block, self._fence = self._block, "", None
        return [block] if block.strip() else []


def blocks_of(text: str) -> list[str]:
    """Cut a whole message into blocks."""
    blocks = MarkdownBlocks()
    return [*blocks.feed(text), *blocks.flush()]


class ShownMarkdown(Markdown):
    """A block in a terminal of so many columns.

    Targets of links and pictures are shown, and what is said by entities is as printable as the rest. What rich would
    cut comes as it was written: tables that are too wide, and lists in lists where no columns are left.
    """

    def __init__(self, block: str, columns: int) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        tokens = PARSER.parse(block)
        left = columns - max(_indents(tokens), default=0)
        if left < FEWEST_COLUMNS:
            tokens = [Token("fence", "code", 0, content=block)]
        self.parsed = [_printable(token) for token in _with_narrow_tables(tokens, block.split("\n"), left)]


def _indents(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield how far to the right each token begins."""
    indent = 0
    for token in tokens:
        indent += INDENTS.get(token.type, 0) - INDENTS.get(token.type.replace("_close", "_open"), 0) * (
            token.nesting == -1
        )
        yield indent


def _with_narrow_tables(tokens: Sequence[Token], lines: Sequence[str], columns: int) -> Iterator[Token]:
    """Put a piece of code in the place of each table that does not fit."""
    left_out = False
    for number, token in enumerate(tokens):
        if token.type == "table_open" and token.map is not None:
            end = next(at for at in range(number, len(tokens)) if tokens[at].type == "table_close")
            if _table_columns(tokens[number:end]) > columns:
                left_out = True
                yield Token("fence", "code", 0, content="\n".join(lines[slice(*token.map)]))
        if not left_out:
            yield token
        if token.type == "table_close":
            left_out = False


def _table_columns(table: Sequence[Token]) -> int:
    """Return the width of a table, with the space between its columns."""
    widths: list[list[int]] = []
    for token in table:
        if token.type == "tr_open":
            widths.append([])
        elif token.type == "inline":
            widths[-1].append(cell_len(token.content) + 3)
    return sum(max(column) for column in zip(*widths, strict=True)) if widths else 0


def _printable(token: Token) -> Token:
    if token.type == "fence" and token.info and Syntax("", token.info.strip()).lexer is None:
        token.content = f"{token.info}\n{token.content}"  # rich shows nothing of it
    token.content = printable(token.content)
    if token.children is not None:
        token.children = [_printable(child) for child in _with_targets(token.children)]
    return token


def _with_targets(tokens: Sequence[Token]) -> Iterator[Token]:
    """Put the targets of links and pictures among the words of a line."""
    target = words = ""
    for token in tokens:
        match token.type:
            case "link_open":  # there is no link in a link
                target = str(token.attrs.get("href", ""))
            case "link_close" if words == target:
                pass
            case "link_close":
                yield Token("text", "", 0, content=f" ({target})")
            case "image":
                yield Token("text", "", 0, content=f"![{token.content}]({token.attrs.get('src', '')})")
            case _:
                yield token
        words = token.content
