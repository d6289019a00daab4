"""The comparison as a picture: a bar for each figure, the share of the reference's time or memory that this project
needs.

Plain SVG, on a logarithmic axis: bars begin at the line of equality; half and double are equally long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.compare import Row
from benchmarks.figures import Unit, ratio_written, written

WIDTH, LEFT, RIGHT = 860, 270, 190
TOP, STEP, BAR = 64, 24, 15
LEAST, MOST = 0.02, 8.0
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #333 } .title { font-size: 15px; font-weight: 600 }
.paper { fill: #fff } .grid { stroke: #ddd } .even { stroke: #555; stroke-width: 1.5 }
.less { fill: #2a7f62 } .more { fill: #c8553d } .quiet { fill: #777 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .paper { fill: #16191d } .grid { stroke: #333a42 }
.even { stroke: #aaa } .less { fill: #49b58f } .more { fill: #e27a62 } .quiet { fill: #999 } }
"""


def svg(rows: Sequence[Row]) -> str:
    """Draw the figures. Figures without a reference and mere counts are left out."""
    shown = [row for row in rows if not math.isnan(row.ratio) and row.figure.unit is not Unit.COUNT]
    height = TOP + STEP * len(shown) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>What app-server takes of the reference's time and memory</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        _text(12, 22, "Time and memory, as a multiple of the reference (left of 1× is better)", "title"),
        *(_tick(each, height) for each in TICKS),
        *(_bar(row, TOP + STEP * n) for n, row in enumerate(shown)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(ratio: float) -> float:
    place = math.log(min(max(ratio, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return LEFT + place * (WIDTH - LEFT - RIGHT)


def _tick(at: float, height: int) -> str:
    x, kind = _x(at), "even" if at == 1.0 else "grid"
    line = f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 10}"/>'
    return line + _text(x, TOP - 14, f"{at:g}×", "quiet", "middle")


def _bar(row: Row, y: int) -> str:
    (start, end), kind = sorted((_x(row.ratio), _x(1.0))), "less" if row.ratio <= 1 else "more"
    low, high = (_x(each) for each in row.spread)
    middle, base = y + BAR / 2, y + BAR - 3
    values = f"{written(row.ours, row.figure.unit)} : {written(row.reference, row.figure.unit)}"
    return "\n".join(
        (
            _text(LEFT - 8, base, row.figure.title.replace("`", ""), anchor="end"),
            f'<rect class="{kind}" x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="{BAR}" rx="2"/>',
            f'<line class="even" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>',
            _text(WIDTH - RIGHT + 12, base, ratio_written(row.ratio)),
            _text(WIDTH - RIGHT + 48, base, values, "quiet"),
        )
    )


def _text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
