"""What text that is typed into a terminal becomes once the terminal has edited the line."""

from __future__ import annotations

_ERASE = frozenset("\x08\x7f")
_ERASE_LINE = "\x15"
_ERASE_WORD = "\x17"


def as_typed(text: str) -> str:
    """The lines that a program reads. What moves a cursor, completes or recalls is left out."""
    lines: list[str] = []
    line = ""
    for character in text:
        if character in "\r\n":
            lines.append(line)
            line = ""
        elif character in _ERASE:
            line = line[:-1]
        elif character == _ERASE_LINE:
            line = ""
        elif character == _ERASE_WORD:
            line = line.rstrip()
            line = line[: line.rfind(" ") + 1]
        elif character.isprintable() or character == "\t":
            line += character
    return "\n".join((*lines, line))
