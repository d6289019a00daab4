"""Cuts streamed Markdown into blocks that can be shown: a paragraph, a list, a fenced block of code at a time.

The module also shows the blocks completely: Markdown may style a model's text, but must not hide any of it.
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
"""Theme with the plain colours of the terminal, which are readable on dark and on light ones; bright colours are
not.
"""

PARSER: Final = (
    MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")
)
"""HTML and definitions of links are text for this parser, because the renderer would leave them out."""

INDENTS: Final = {"blockquote_open": 4, "bullet_list_open": 3, "ordered_list_open": 12}
"""Maximum indentation in columns of the content of each kind of block."""

FEWEST_COLUMNS: Final = 20
"""Minimum number of columns that must be left for the innermost content."""


class MarkdownBlocks(Struct):
    """The blocks of one message."""

    _line: str = ""
    _block: str = ""
    _fence: str | None = None
    """Mark that closes the open block of code. None if no block is open."""

    @property
    def unfinished(self) -> str:
        """The text since the last complete block."""
        return self._block + self._line

    def feed(self, text: str) -> list[str]:
        """Return the blocks that `text` completes."""
        done: list[str] = []
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            done += self._take(line)
        return done

    def flush(self) -> list[str]:
        """Return the rest at the end of the message, as blocks."""
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
    """A block in a terminal with a certain number of columns.

    Targets of links and images are shown, and entities are as printable as the rest. If rich would cut a block, it is
    shown as it was written: tables that are too wide, and nested lists for which no columns are left.
    """

    def __init__(self, block: str, columns: int) -> None:
        super().__init__("", code_theme=CODE_THEME, hyperlinks=False)
        tokens = PARSER.parse(block)
        left = columns - max(_indents(tokens), default=0)
        if left < FEWEST_COLUMNS:
            tokens = [Token("fence", "code", 0, content=block)]
        self.parsed = [_printable(token) for token in _with_narrow_tables(tokens, block.split("\n"), left)]


def _indents(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the indentation of each token, in columns."""
    indent = 0
    for token in tokens:
        indent += INDENTS.get(token.type, 0) - INDENTS.get(token.type.replace("_close", "_open"), 0) * (
            token.nesting == -1
        )
        yield indent


def _with_narrow_tables(tokens: Sequence[Token], lines: Sequence[str], columns: int) -> Iterator[Token]:
    """Replace each table that does not fit by a block of code."""
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
        token.content = f"{token.info}\n{token.content}"  # rich does not show the info text
    token.content = printable(token.content)
    if token.children is not None:
        token.children = [_printable(child) for child in _with_targets(token.children)]
    return token


def _with_targets(tokens: Sequence[Token]) -> Iterator[Token]:
    """Put the targets of links and images into the text of a line."""
    target = words = ""
    for token in tokens:
        match token.type:
            case "link_open":  # links are not nested
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
