"""Results as text: for the terminal, and for a page of documentation.

A page has places for results between `<!-- begin NAME -->` and `<!-- end NAME -->`; the text outside stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import Row
from benchmarks.figures import ratio_written, written

Table = Sequence[Sequence[str]]
"""Rows of cells; the first row is the head."""


def comparison(rows: Sequence[Row]) -> Table:
    if all(math.isnan(row.reference) for row in rows):
        return [("", "ours"), *((row.figure.title, written(row.ours, row.figure.unit)) for row in rows)]
    return [
        ("", "ours", "reference", "ratio", "of the rounds"),
        *((row.figure.title, *_measured(row), ratio_written(row.ratio), _spread(row)) for row in rows),
    ]


def _measured(row: Row) -> tuple[str, str]:
    return written(row.ours, row.figure.unit), written(row.reference, row.figure.unit)


def _spread(row: Row) -> str:
    if math.isnan(row.ratio):
        return "–"
    return " to ".join(ratio_written(each) for each in row.spread)


def plain(table: Table) -> str:
    """Format a table for a terminal: the first column aligned left, the others right."""
    widths = [max(len(row[n]) for row in table) for n in range(len(table[0]))]
    lines = []
    for first, *others in table:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def markdown(table: Table) -> str:
    head, *rest = table
    rule = ("---", *("---:" for _ in head[1:]))
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rest))


def insert(page: Path, name: str, text: str) -> None:
    """Write a result into its place on the page. A page without the place becomes the result."""
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    place = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    new, found = place.subn(lambda match: f"{match[1]}\n{text}\n{match[2]}", old)
    page.write_text(new if found else f"{old}\n{text}".lstrip("\n"), encoding="utf-8")
