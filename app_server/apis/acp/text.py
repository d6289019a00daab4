"""Texts as editors show them: titles, what commands print, fenced blocks. Pure."""

from __future__ import annotations

import re
from typing import Final

TITLE: Final = 80
CALL_TITLE: Final = 120

_CONTROL: Final = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_TICKS: Final = re.compile(r"`{3,}")
LONGEST_READ: Final = 1 << 16
"""Characters of a text that are read for its first line."""


def one_line(text: str, limit: int = TITLE) -> str:
    """Return the beginning of a text in one line, cut at `limit` characters."""
    words = " ".join(text[:LONGEST_READ].split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def plain_output(text: str) -> str:
    """Return output without terminal control; of a line that was written over, what was left in the end."""
    if "\x1b" in text or not text.isprintable():
        text = _CONTROL.sub("", text)
        if "\r" in text:
            text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return text


def fenced(text: str, language: str = "") -> str:
    """Return a fenced block that nothing in the text can end."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"
