"""A text file as lines with their line ends, so that unchanged lines keep every byte. Pure."""

from __future__ import annotations

from protocol.records import dataclass

BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    end: str
    """"\\n", "\\r\\n", or "" for a last line without a line end."""


@dataclass(frozen=True, slots=True)
class FileText:
    lines: tuple[Line, ...]
    bom: bool = False

    def encode(self) -> bytes:
        body = "".join([line.text + line.end for line in self.lines])
        return (BOM + body if self.bom else body).encode("utf-8")


def decode(content: bytes) -> FileText:
    """Raises UnicodeDecodeError for invalid UTF-8."""
    text = content.decode("utf-8")
    bom = text.startswith(BOM)
    pieces = text.removeprefix(BOM).split("\n")
    lines = [_ended(piece) for piece in pieces[:-1]]
    if pieces[-1]:
        lines.append(Line(pieces[-1], ""))
    return FileText(tuple(lines), bom)


def _ended(piece: str) -> Line:
    return Line(piece[:-1], "\r\n") if piece.endswith("\r") else Line(piece, "\n")
