"""Draws the flowcharts of the documentation as SVG for the site, as `sequence_svg` does with sequence diagrams.

The module supports the part of Mermaid's notation that they use: `flowchart TD`, boxes `id["text"]` with `<b>` and
`<br>`, and arrows `a --> b` and `a -. "text" .-> b`. A box stands in the row below all boxes that point to it by a
plain arrow; a dotted one joins two boxes of a row.
"""

import re
from html import escape

BOX = re.compile(r'(\w+)\["(.+)"\]')
ARROW = re.compile(r'(\w+) (?:-->|-\. "(.+)" \.->) (\w+)')

WIDTH = 420
"""Width of a box, in pixels."""
GAP = 80
"""Distance between two rows, and between two boxes of a row, in pixels."""
LINE = 18
"""Height of a line of text, in pixels."""

STYLE = (
    ".flow{max-width:100%;height:auto;font:13px sans-serif;color:inherit}"
    ".flow text{fill:currentColor;text-anchor:middle}.flow .first{font-weight:bold}"
    ".flow line,.flow path,.flow rect{stroke:currentColor;fill:none}"
    ".flow .head{fill:currentColor}.flow .dotted{stroke-dasharray:5 4}"
)


def drawn(diagram: str) -> str:
    """Return a flowchart as an SVG element. Raises ValueError for an unknown line."""
    texts, arrows = _read(diagram)
    rows = _rows(texts, arrows)
    height = max(len(lines) for lines in texts.values()) * LINE + 16
    widest = max(len(names) for names in rows)
    width = widest * (WIDTH + GAP)
    places = {
        name: (width * (2 * at + 1) // (2 * len(names)), GAP // 2 + number * (height + GAP))
        for number, names in enumerate(rows)
        for at, name in enumerate(names)
    }
    parts = [_arrow(places[a], places[b], text, height) for a, text, b in arrows]
    parts += [_box(texts[name], x, y, height) for name, (x, y) in places.items()]
    said = escape("; ".join(f"{a} to {b}" for a, _, b in arrows), quote=True)
    size = f'viewBox="0 0 {width} {len(rows) * (height + GAP)}" width="{width}"'
    return f'<svg class="flow" role="img" aria-label="{said}" {size}><style>{STYLE}</style>{"".join(parts)}</svg>'


def _read(diagram: str) -> tuple[dict[str, list[str]], list[tuple[str, str, str]]]:
    """Return the lines of text of each box, and the arrows with their texts."""
    texts: dict[str, list[str]] = {}
    arrows: list[tuple[str, str, str]] = []
    kind, *lines = (line.strip() for line in diagram.strip().splitlines())
    if kind != "flowchart TD":
        raise ValueError(f"not a flowchart from top to bottom: {kind}")
    for line in lines:
        if found := BOX.fullmatch(line):
            texts[found[1]] = [re.sub("</?b>", "", part) for part in found[2].split("<br>")]
        elif found := ARROW.fullmatch(line):
            arrows.append((found[1], found[2] or "", found[3]))
        else:
            raise ValueError(f"neither a box nor an arrow: {line}")
    return texts, arrows


def _rows(texts: dict[str, list[str]], arrows: list[tuple[str, str, str]]) -> list[list[str]]:
    depth = dict.fromkeys(texts, 0)
    for _ in texts:
        for a, text, b in arrows:
            if text:
                continue
            depth[b] = max(depth[b], depth[a] + 1)
    return [[name for name in texts if depth[name] == row] for row in range(max(depth.values()) + 1)]


def _box(lines: list[str], x: int, y: int, height: int) -> str:
    top = y + (height - len(lines) * LINE) // 2 + 13
    shown = "".join(
        f'<text class="{"more" if number else "first"}" x="{x}" y="{top + number * LINE}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return f'<rect x="{x - WIDTH // 2}" y="{y}" width="{WIDTH}" height="{height}" rx="4"/>{shown}'


def _arrow(start: tuple[int, int], end: tuple[int, int], text: str, height: int) -> str:
    """Draw a plain arrow from the bottom of one box to the top of another, or a dotted one to the box on its right."""
    if text:
        x1, x2, y = start[0] + WIDTH // 2, end[0] - WIDTH // 2, start[1] + height // 2
        line = f'<line class="dotted" x1="{x1}" y1="{y}" x2="{x2}" y2="{y}"/>'
        head = f'<path class="head" d="M{x2 - 9} {y - 5}L{x2} {y}L{x2 - 9} {y + 5}Z"/>'
        return f'{line}{head}<text x="{(x1 + x2) // 2}" y="{y - 8}">{escape(text)}</text>'
    x1, y1, x2, y2 = start[0], start[1] + height, end[0], end[1]
    line = f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
    return f'{line}<path class="head" d="M{x2 - 5} {y2 - 9}L{x2} {y2}L{x2 + 5} {y2 - 9}Z"/>'
