"""Finder of the code blocks of the documentation, with their marks about running them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)$")
MARK = re.compile(r"^<!-- (not run: .{5,}|run by tests/\S+\.py) -->$")
"""Mark in the line before a block. It is not shown when the page is rendered."""


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    """Line number of the fence."""
    language: str
    text: str
    mark: str | None
    """Text of the mark: `not run: REASON` or `run by PATH`. None if the block has no mark."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    patterns = ("*.md", "docs/**/*.md", "editors/README.md", "editors/*/README.md")
    return sorted(page for pattern in patterns for page in ROOT.glob(pattern))


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchor_of(heading: str) -> str:
    """Return the anchor that forges, and the site, give to a heading."""
    shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown).strip().lower().replace(" ", "-")


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opened = FENCE.match(lines[number])
        if opened:
            end = lines.index("```", number + 1)
            marked = MARK.match(lines[number - 1]) if number else None
            text = "\n".join(lines[number + 1 : end]) + "\n"
            yield Block(page, number + 1, opened[1], text, marked[1] if marked else None)
            number = end
        number += 1


def unmarked_indented_blocks(page: Path) -> list[int]:
    """Return the lines at which a code block without a fence begins: it has no language, so it needs a mark
    before it.
    """
    fenced, blank, last, found = False, False, "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif (
            line.startswith("    ") and blank and not (fenced or last.startswith("    ") or MARK.match(last))
        ):
            found.append(number)
        blank = not line.strip()
        last = last if blank else line
    return found
