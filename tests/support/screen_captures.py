"""Pictures of a terminal for the documentation: the screen as SVG, made by rich, without fonts from the network."""

import io
import os
import re
from pathlib import Path

from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.support.terminal import Terminal

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORDING = "RECORD_CAPTURES" in os.environ
"""Whether the pictures are written (`make captures`). Otherwise tests only run what the pictures show."""

CHANGING = (
    (re.compile(r"(?<=app-server-demo-)\w{8}"), "a1b2c3d4"),
    (re.compile(r"(?<=working )\d+(?= s)"), "2"),
    (re.compile(r"(?<= 40,)( \d+,)+"), ""),  # the numbers that the scripted model has printed so far
)
"""Patterns of texts that differ between runs, and their replacements: of the same width, or at the end of a line."""

COLOURS = {"brown": "yellow", "brightbrown": "bright_yellow", "bfightmagenta": "bright_magenta"}
"""Colour names of pyte that rich spells in another way."""

SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def capture(terminal: Terminal, name: str) -> None:
    """Write `docs/NAME.svg` if pictures are recorded."""
    if RECORDING:
        (DOCS / f"{name}.svg").write_text(as_svg(terminal, name), encoding="utf-8")


def as_svg(terminal: Terminal, name: str) -> str:
    console = Console(record=True, width=terminal.columns, file=io.StringIO(), force_terminal=True)
    for y in range(terminal.screen.lines):
        console.print(_line(terminal, y), no_wrap=True, overflow="crop", crop=True)
    svg = console.export_svg(title="app-server chat", code_format=SVG, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def _line(terminal: Terminal, y: int) -> Text:
    cells = [terminal.screen.buffer[y][x] for x in range(terminal.columns)]
    plain = "".join(cell.data for cell in cells)  # the second cell of a wide character is empty
    for pattern, constant in CHANGING:
        plain = pattern.sub(constant, plain)
    line, at = Text(plain.rstrip() or " "), 0
    for cell in cells:
        line.stylize(_style(cell), at, at + len(cell.data))
        at += len(cell.data)
    if any(cell.reverse or cell.bg != "default" for cell in cells):
        line.append(plain[len(line.plain) :])  # extend the background colour to the line's end
    return line


def _style(cell: Char) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _colour(name: str) -> str:
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return COLOURS.get(name, name.replace("bright", "bright_") if name.startswith("bright") else name)
