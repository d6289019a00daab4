"""A text file as lines that remember how they end, so that what is not changed stays byte for byte. Pure."""

from __future__ import annotations

from protocol.records import dataclass

BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    end: str
    """"\\n", "\\r\\n", or "" for a last line that is not ended."""


@dataclass(frozen=True, slots=True)
class FileText:
    lines: tuple[Line, ...]
    bom: bool = False

    def encode(self) -> bytes:
        body = "".join([line.text + line.end for line in self.lines])
        return (BOM + body if self.bom else body).encode("utf-8")


def decode(content: bytes) -> FileText:
    """Raises UnicodeDecodeError for what is not UTF-8."""
    text = content.decode("utf-8")
    bom = text.startswith(BOM)
    pieces = text.removeprefix(BOM).split("\n")
    lines = [_ended(piece) for piece in pieces[:-1]]
    if pieces[-1]:
        lines.append(Line(pieces[-1], ""))
    return FileText(tuple(lines), bom)


def _ended(piece: str) -> Line:
    return Line(piece[:-1], "\r\n") if piece.endswith("\r") else Line(piece, "\n")
